"""Build the crate for the Python that runs this, and install it there: `.venv/bin/python native/install.py`

Done already, and nothing changed since: it says nothing and returns at once. Without Rust, or when the build fails, it
says so in one line and returns 3; then the twin in Python serves, with the same answers. Standard library only.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
RUST_LEAST = re.findall(r'rust-version = "(\d+)\.(\d+)"', (FOLDER / "Cargo.toml").read_text())[0]
STAMP = Path(sys.prefix) / ".stamp-ottla-native"
TWIN = "columns are made in Python, slowly"
NOT_BUILT = 3


def main() -> int:
    inputs = digest()
    if STAMP.exists() and STAMP.read_text() == inputs and importable():
        return 0
    if not has_rust():
        print(f"ottla-native: no Rust {'.'.join(RUST_LEAST)} or newer here: {TWIN}", flush=True)
        return NOT_BUILT
    print("ottla-native: building, about a minute", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall"]
    built = subprocess.run([*pip, "--no-deps", str(FOLDER)], capture_output=True, text=True, check=False)
    if built.returncode:
        print(built.stderr, file=sys.stderr)
        print(f"ottla-native: the build failed: {TWIN}", flush=True)
        return NOT_BUILT
    STAMP.write_text(inputs)
    return 0


def digest() -> str:
    """Of all that the result depends on."""
    files = sorted(path for pattern in ("*.toml", "*.lock", "src/*.rs") for path in FOLDER.glob(pattern))
    found = hashlib.sha256(sys.version.encode())
    for path in files:
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def importable() -> bool:
    return (
        subprocess.run([sys.executable, "-c", "import ottla_native"], capture_output=True, check=False).returncode == 0
    )


def has_rust() -> bool:
    if not shutil.which("cargo"):
        return False
    version = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"(\d+)\.(\d+)", version)
    return number is not None and tuple(map(int, number.groups())) >= tuple(map(int, RUST_LEAST))


if __name__ == "__main__":
    sys.exit(main())
