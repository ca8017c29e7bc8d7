"""Build the crate: `python native/build.py` puts the extension into `src/ottla`, where a clone imports it.

If it is built and nothing has changed, it returns at once. If it cannot be built, it prints the reason in one line and
returns 3; Ottla then uses the same code in Python, with the same results. `native/hook.py` calls this for pip,
`scripts/setup.py` for a clone. It uses the standard library only.

The extension uses Python's stable ABI, so one build works with every CPython from 3.11 on, and linking needs no
interpreter: the same sources always give the same file.

OTTLA_NATIVE_TARGET=aarch64-unknown-linux-gnu.2.17 builds for another machine, and for every Linux with that glibc or a
newer one: `scripts/wheels.py` sets it. Zig is the linker then, since it knows the symbols of every glibc.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MODULE = "_native.abi3.so"
PLACE = FOLDER.parent / "src" / "ottla" / MODULE
STAMP = FOLDER / "target" / "stamp"  # digest of what PLACE was built from
TWIN = "Ottla runs without its native part, slower"
NOT_BUILT = 3
TARGET = "OTTLA_NATIVE_TARGET"


class NotBuilt(Exception):
    """Why there is no extension, in one line; `details` is what the compiler said."""

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.details = details


def main() -> int:
    try:
        build_in_place(announce=True)
    except NotBuilt as error:
        print(error.details, file=sys.stderr, end="")
        print(f"native: {error}: {TWIN}", flush=True)
        return NOT_BUILT
    return 0


def build_in_place(announce: bool = False) -> None:
    """Make PLACE what the sources say, or leave no file there: an old one may give other answers than its twin."""
    inputs = digest()
    if PLACE.exists() and STAMP.exists() and STAMP.read_text() == inputs:
        return
    try:
        built = build(announce)
        STAMP.parent.mkdir(exist_ok=True)
        beside = PLACE.with_suffix(f".{os.getpid()}")
        shutil.copyfile(built, beside)
        os.replace(beside, PLACE)  # whole or not there, also for who imports it now
        STAMP.write_text(inputs)
    except (NotBuilt, OSError) as error:
        PLACE.unlink(missing_ok=True)
        raise error if isinstance(error, NotBuilt) else NotBuilt(f"{error.filename}: {error.strerror}") from error


def build(announce: bool = False) -> Path:
    """The path of the shared library that cargo made."""
    require_python()
    require_rust()
    if announce:
        print("native: building, about a minute", flush=True)
    command = ["cargo", "rustc", "--release", "--locked", "--lib", "--message-format=json-render-diagnostics"]
    if target := os.environ.get(TARGET):
        command = ["cargo-zigbuild", "zigbuild", *command[2:], "--target", target]
    elif sys.platform == "darwin":  # symbols of the interpreter are found when it loads the module
        command += ["--", "-Clink-arg=-undefined", "-Clink-arg=dynamic_lookup"]
    environment = {**os.environ, "PYO3_NO_PYTHON": "1", "PYO3_BUILD_EXTENSION_MODULE": "1"}
    try:
        run = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotBuilt(f"{command[0]} does not run ({error.strerror})") from error
    if run.returncode:
        causes = [line for line in run.stderr.splitlines() if line.lstrip().startswith("error")]
        raise NotBuilt(f"the build failed ({causes[0].strip() if causes else 'cargo says nothing'})", run.stderr)
    return library(run.stdout)


def library(messages: str) -> Path:
    """What cargo says it made; where that lies depends on the user's settings of cargo."""
    for line in messages.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message["target"]["name"] == "ottla_native":
            return Path(message["filenames"][0])
    raise NotBuilt("cargo made no library")


def require_python() -> None:
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuilt("this Python has no stable ABI")


def require_rust() -> None:
    least = re.findall(r'^rust-version = "(\d+)\.(\d+)"', (FOLDER / "Cargo.toml").read_text(), re.MULTILINE)[0]
    found = rust_version()
    if found is None or found < tuple(map(int, least)):
        there = f"Rust {'.'.join(map(str, found))} is too old" if found else "no Rust here"
        raise NotBuilt(f"{there} ({'.'.join(least)} or newer builds it)")


def rust_version() -> tuple[int, ...] | None:
    """Of the compiler that cargo would call in this folder: rustup lets each folder choose."""
    if not shutil.which("cargo"):
        return None
    try:
        command = ["rustc", "--version"]
        run = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    except OSError:
        return None
    number = re.match(r"rustc (\d+)\.(\d+)", run.stdout)
    return tuple(map(int, number.groups())) if number else None


def digest() -> str:
    """Of all that the result depends on."""
    found = hashlib.sha256(f"{sys.platform} {platform.machine()}".encode())
    for path in (Path(__file__), *sorted(path for each in ("Cargo.*", "src/**/*.rs") for path in FOLDER.glob(each))):
        found.update(path.relative_to(FOLDER).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
