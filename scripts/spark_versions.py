"""Test the Spark source and sink on each supported version of PySpark: `make spark-versions`.

Each gets an environment of its own under `build/` (400 MB to download, once) and runs `examples/spark_orders.py` there:
a batch write, a stream that ends, exactly once, and a batch read. Not part of the suite, which runs on one version.
"""

import ast
import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import ottla

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "spark_orders.py"
VERSIONS = ("4.2", "4.3")


def main(versions: list[str]) -> int:
    passed = [attempt(version) for version in versions or VERSIONS]
    return 0 if all(passed) else 1


def attempt(version: str) -> bool:
    python = install(version)
    environment = {**os.environ, "PYSPARK_PYTHON": python}
    with ottla.BrokerProcess() as broker:
        command = [python, str(EXAMPLE), broker.bootstrap]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    right = done.returncode == 0 and done.stdout.strip() == expected()
    print(
        f"PySpark {version}: {'reads, writes, streams' if right else 'does not do what the example says'}", flush=True
    )
    return right


def install(version: str) -> str:
    """The path of a Python that has Ottla and this PySpark."""
    folder = ROOT / "build" / f"spark-{version}"
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        venv.create(folder, with_pip=True)
    packages = ["--editable", f"{ROOT}[spark]", f"pyspark~={version}.0"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
    return python


def expected() -> str:
    docstring = ast.get_docstring(ast.parse(EXAMPLE.read_text())) or ""
    return textwrap.dedent(docstring.partition("Prints:\n")[2]).strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
