"""Builds the release files into `dist/`: the sdist, and a wheel with the native part for each Linux of TARGETS.

    make wheels      builds, checks, and installs the one for this machine into an environment of its own
    python scripts/wheels.py check dist/*.whl

One wheel serves every CPython from 3.11 on (stable ABI) and every Linux with glibc 2.17 or newer. Rust builds it, with
zig as the linker. macOS has no wheel yet: its linker needs Apple's SDK; pip builds from the sdist there if Rust exists.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
GLIBC = (2, 17)  # manylinux2014: the oldest that Rust supports
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
MODULE = "ottla/_native.abi3.so"
TRY = "import ottla, ottla._native; b = ottla.BrokerThread(); b.start(); b.stop()"


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["check"]:
        for name in arguments[1:]:
            check(Path(name))
        return 0
    shutil.rmtree(DIST, ignore_errors=True)
    call(sys.executable, "-m", "pip", "install", "--quiet", "--editable", f"{ROOT}[release]")
    for target in TARGETS:
        say(f"building for {target}")
        if shutil.which("rustup"):
            call("rustup", "target", "add", target)
        call(*hatchling("wheel"), OTTLA_NATIVE_TARGET=f"{target}.{'.'.join(map(str, GLIBC))}")
    call(*hatchling("sdist"))
    wheels = sorted(DIST.glob("*.whl"))
    for wheel in wheels:
        check(wheel)
    call(sys.executable, "-m", "twine", "check", "--strict", *map(str, sorted(DIST.iterdir())))
    for wheel in wheels:
        if wheel.stem.endswith(os.uname().machine):
            install(wheel)
    for file in sorted(DIST.iterdir()):
        say(f"{file.relative_to(ROOT)}  {file.stat().st_size / 1e6:.1f} MB")
    return 0


def hatchling(target: str) -> list[str]:
    return [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(DIST)]


def check(wheel: Path) -> None:
    """Check that the library is for the machine in the wheel's name, and needs no newer glibc than the name says."""
    found = re.fullmatch(r"ottla-[^-]+-cp311-abi3-manylinux_(\d+)_(\d+)_(\w+)\.whl", wheel.name)
    if not found:
        stop(f"{wheel.name}: not the name of an abi3 manylinux wheel")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read(MODULE)
    machine = struct.unpack_from("<H", library, 18)[0] if library.startswith(b"\x7fELF") else None
    if machine != ELF_MACHINES[found[3]]:
        stop(f"{wheel.name}: its library is for machine {machine}, not for {found[3]}")
    needed = max(((int(x), int(y)) for x, y in re.findall(rb"GLIBC_(\d+)\.(\d+)", library)), default=(0, 0))
    if needed > (int(found[1]), int(found[2])):
        stop(f"{wheel.name}: its library needs glibc {needed[0]}.{needed[1]}")
    say(f"{wheel.name}: {found[3]}, needs glibc {needed[0]}.{needed[1]}")


def install(wheel: Path) -> None:
    """Install into an empty environment, where a broker must start with its native part."""
    folder = ROOT / "build" / "bare"
    venv.create(folder, clear=True, with_pip=True)
    python = str(folder / "bin" / "python")
    call(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    call(python, "-c", TRY)
    say(f"{wheel.name}: installed and tried in {folder.relative_to(ROOT)}")


def call(*command: str, **environment: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, env={**outside, "PATH": path, **environment}, check=False)
    if done.returncode:
        stop(f"failed: {' '.join(command)}")


def say(message: str) -> None:
    print(f"wheels: {message}", flush=True)


def stop(message: str) -> NoReturn:
    sys.exit(f"wheels: {message}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
