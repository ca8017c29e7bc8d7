"""What `make wheels` builds: wheels whose names are correct, and which work with only their dependencies installed.

The wheel for this machine is built here from cargo's cache, which takes seconds. One for another machine would
take minutes; the tests of its name, its failures and its checks use a stand-in for the compiler.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ottla
from ottla import serve

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
ARM = "aarch64-unknown-linux-gnu.2.17"
TRY = """
import importlib.util, sys, ottla
assert (importlib.util.find_spec("ottla._native") is not None) == (sys.argv[1] == "True")
with ottla.BrokerThread() as broker:
    print(broker.bootstrap)
"""
TWICE = """
import sys
sys.modules["ottla._native"] = None
import ottla
for _ in range(2):
    with ottla.BrokerThread():
        pass
"""


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(folder: Path, path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    variables = {**os.environ, "PATH": path, **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = build(folder, os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.xdist_group("wheel")
def test_a_wheel_works_with_nothing_but_its_dependencies(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    site = next((tmp_path / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        metadata = archive.read(f"ottla-{ottla.__version__}.dist-info/METADATA").decode()
    for line in re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE):
        link(re.split(r"[<>=!\[ ]", line)[0], site)
    command = [str(tmp_path / "bin" / "python"), "-I", "-c", TRY, str("abi3" in wheel.name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("127.0.0.1:")


def link(name: str, site: Path) -> None:
    """Make a package that is installed here available in another environment."""
    found = distribution(name)
    for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(found.locate_file(top))))


@pytest.mark.xdist_group("wheel")
def test_the_page_on_the_index_has_no_link_that_needs_the_clone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"ottla-{ottla.__version__}.dist-info/METADATA").decode()
        names = archive.namelist()
    fields, _, page = metadata.partition("\n\n")
    source = re.findall(r"^Project-URL: Source, (\S+)$", fields, re.MULTILINE)[0]
    assert "Description-Content-Type: text/markdown" in fields
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert not [link for link in links if not link.startswith(("https://", "#"))]
    for link in links:
        if link.startswith(source):
            assert (ROOT / re.sub(r"^/(blob|raw)/main/|#.*", "", link.removeprefix(source))).exists(), link
    assert {"ottla/py.typed", "pyspark_ottla/py.typed"} <= set(names)


def compiler(folder: Path, failure: str = "") -> str:
    """A PATH with stand-ins for Rust's and zig's programs, which write an ELF file of a few bytes."""
    folder.mkdir()
    library = folder / "libottla_native.so"
    library.write_bytes(elf(183, b"GLIBC_2.17"))
    made = {"reason": "compiler-artifact", "target": {"name": "ottla_native"}, "filenames": [str(library)]}
    lines = {
        "rustc": "echo 'rustc 1.99.0 (a day)'",
        "cargo": "exit 1",
        "cargo-zigbuild": f"echo '{failure}' >&2; exit 1" if failure else f"echo '{json.dumps(made)}'; echo \"$@\" >&2",
    }
    for name, line in lines.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def elf(machine: int, text: bytes) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little") + machine.to_bytes(2, "little") + text


def test_a_wheel_for_another_machine_says_so_in_its_name(tmp_path: Path) -> None:
    done = build(tmp_path, compiler(tmp_path / "bin"), OTTLA_NATIVE_TARGET=ARM)
    assert done.returncode == 0, done.stderr
    (made,) = tmp_path.glob("*.whl")
    assert made.name == f"ottla-{ottla.__version__}-cp311-abi3-manylinux_2_17_aarch64.whl"
    load(ROOT / "scripts" / "wheels.py").check(made)


def test_a_wheel_that_was_asked_for_has_its_library_or_is_not_made(tmp_path: Path) -> None:
    done = build(tmp_path, compiler(tmp_path / "bin", "error: no linker"), OTTLA_NATIVE_TARGET=ARM)
    assert done.returncode != 0
    assert "error: no linker" in done.stderr
    assert not list(tmp_path.glob("*.whl"))


@pytest.mark.parametrize(
    ("name", "library", "said"),
    [
        ("manylinux_2_17_x86_64", elf(62, b"GLIBC_2.17 GLIBC_2.2.5"), None),
        ("manylinux_2_17_aarch64", elf(62, b"GLIBC_2.17"), "for machine 62, not for aarch64"),
        ("manylinux_2_17_x86_64", elf(62, b"GLIBC_2.4 GLIBC_2.28"), "needs glibc 2.28"),
        ("manylinux_2_17_x86_64", b"text", "for machine None, not for x86_64"),
        ("linux_x86_64", elf(62, b""), "not the name of an abi3"),
    ],
)
def test_a_wheel_that_promises_too_much_is_refused(name: str, library: bytes, said: str | None, tmp_path: Path) -> None:
    wheels = load(ROOT / "scripts" / "wheels.py")
    made = tmp_path / f"ottla-1.0-cp311-abi3-{name}.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(wheels.MODULE, library)
    if said is None:
        wheels.check(made)
    else:
        with pytest.raises(SystemExit, match=said):
            wheels.check(made)


def test_the_container_starts_a_broker_as_the_command_line_allows() -> None:
    (command,) = re.findall(r"^CMD (\[.+\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    name, *arguments = json.loads(command)
    assert name == "serve"
    assert serve.parser().parse_args(arguments)


def test_a_program_without_the_native_part_is_told_once() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the native part of Ottla is missing") == 1
