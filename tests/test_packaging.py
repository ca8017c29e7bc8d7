"""What pip builds from the sources: an sdist, a wheel with the native part where Rust is found, otherwise one without.

Cargo is replaced by a script that quickly writes a library of a few bytes, or fails as a compiler does. The tests that
use the real library (tests/records) show that it works.
"""

import importlib.util
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import ottla
from ottla.records import native

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = b"what cargo made"
MODULE = "ottla/_native.abi3.so"
NEW, OLD = "rustc 1.99.0", "rustc 1.60.0"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist: it must contain everything a wheel needs."""
    folder = tmp_path_factory.mktemp("sdist")
    done = hatch(ROOT, "sdist", folder, os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    with tarfile.open(folder / f"ottla-{ottla.__version__}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"ottla-{ottla.__version__}"


@pytest.fixture
def rust(tmp_path: Path) -> Path:
    return write_rust(tmp_path / "rust", NEW)


def write_rust(folder: Path, version: str, failure: str = "") -> Path:
    """Write stand-ins for Rust's programs into a folder, which is the whole PATH."""
    folder.mkdir()
    library = folder / "libottla_native.so"
    library.write_bytes(LIBRARY)
    made = f'{{"reason": "compiler-artifact", "target": {{"name": "ottla_native"}}, "filenames": ["{library}"]}}'
    for name, lines in {
        "rustc": f"echo '{version} (a day)'",
        "cargo": f"echo '{failure}' >&2; exit 101" if failure else f"echo '{made}'",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o755)
    return folder


def hatch(source: Path, target: str, folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    return run(command, path, cwd=source)


def run(command: list[str], path: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def wheel(source: Path, folder: Path, path: Path) -> tuple[Path, str]:
    """The one wheel that was built, and the build's output."""
    done = hatch(source, "wheel", folder, str(path))
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made, done.stdout + done.stderr


def test_the_sdist_has_the_crate_and_nothing_that_was_built(unpacked: Path) -> None:
    files = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    crate = {path.relative_to(ROOT).as_posix() for path in (ROOT / "native" / "src").rglob("*.rs")}
    assert crate | {"native/Cargo.toml", "native/Cargo.lock", "native/hook.py", "LICENSE", "README.md"} <= files
    assert not [name for name in files if name.endswith((".so", ".pyc")) or "/target/" in name]


def test_a_wheel_has_the_native_part_and_says_so_in_its_name(unpacked: Path, rust: Path, tmp_path: Path) -> None:
    made, _ = wheel(unpacked, tmp_path, rust)
    assert made.name.startswith(f"ottla-{ottla.__version__}-cp311-abi3-")
    with zipfile.ZipFile(made) as archive:
        names = set(archive.namelist())
        assert archive.read(MODULE) == LIBRARY
        information = f"ottla-{ottla.__version__}.dist-info"
        entries = archive.read(f"{information}/entry_points.txt").decode()
    assert {"ottla/py.typed", "pyspark_ottla/__init__.py", f"{information}/licenses/LICENSE"} <= names
    assert "ottla = ottla.__main__:main" in entries
    assert "ottla = ottla.pytest_plugin" in entries


def test_a_wheel_of_a_clone_does_not_take_the_module_that_lies_there(
    unpacked: Path, rust: Path, tmp_path: Path
) -> None:
    lying = unpacked / "src" / MODULE
    lying.write_bytes(b"from another day")
    try:
        made, _ = wheel(unpacked, tmp_path, rust)
        with zipfile.ZipFile(made) as archive:
            assert archive.read(MODULE) == LIBRARY
        made.unlink()
        made, _ = wheel(unpacked, tmp_path, tmp_path / "nothing")
        with zipfile.ZipFile(made) as archive:
            assert MODULE not in archive.namelist()
    finally:
        lying.unlink()


@pytest.mark.parametrize(
    ("version", "failure", "said"),
    [
        (None, "", "native: no Rust here ("),
        (OLD, "", "native: Rust 1.60 is too old ("),
        ("rustup: no toolchain", "", "native: no Rust here ("),
        (NEW, "error: linking with `cc` failed", "native: the build failed (error: linking with `cc` failed)"),
    ],
)
def test_a_wheel_without_it_is_pure_python_and_the_reason_is_told(
    unpacked: Path, tmp_path: Path, version: str | None, failure: str, said: str
) -> None:
    path = write_rust(tmp_path / "rust", version, failure) if version else tmp_path / "nothing"
    made, output = wheel(unpacked, tmp_path, path)
    assert made.name == f"ottla-{ottla.__version__}-py3-none-any.whl"
    assert len([line for line in output.splitlines() if said in line]) == 1, output


def test_a_clone_gets_it_once_and_again_when_the_crate_changed(unpacked: Path, rust: Path, tmp_path: Path) -> None:
    command, place = [sys.executable, "native/build.py"], unpacked / "src" / MODULE
    first = run(command, str(rust), unpacked)
    assert (first.returncode, place.read_bytes()) == (0, LIBRARY)
    place.write_bytes(b"untouched")
    again = run(command, str(rust), unpacked)
    assert (again.returncode, again.stdout, place.read_bytes()) == (0, "", b"untouched")
    with (unpacked / "native" / "src" / "lib.rs").open("a") as source:
        source.write("// changed\n")
    assert run(command, str(rust), unpacked).returncode == 0
    assert place.read_bytes() == LIBRARY
    (unpacked / "native" / "src" / "new.rs").touch()
    failed = run(command, str(tmp_path / "nothing"), unpacked)
    assert failed.returncode == 3
    assert failed.stdout.count("\n") == 1
    assert not place.exists(), "what was built from other sources may give other answers"


def test_an_editable_install_gets_it_beside_the_sources(unpacked: Path, rust: Path) -> None:
    place, data = unpacked / "src" / MODULE, dict[str, object]()
    place.unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(rust))
        loaded(unpacked / "native" / "hook.py").NativeHook.initialize(None, "editable", data)
    assert (place.read_bytes(), data) == (LIBRARY, {}), "the wheel itself has only the path of the sources"
    place.unlink()


def test_this_suite_runs_on_the_native_part_wherever_it_can_be_built() -> None:
    assert native.is_built() or not can_build(), "native/build.py, which `make test` calls, says why"
    assert native.missing() == (None if native.is_built() else native.MISSING)


def can_build() -> bool:
    """Whether Rust is installed and the crates are cached or can be downloaded."""
    crate = loaded(ROOT / "native" / "build.py")
    try:
        crate.require_rust()
    except crate.NotBuilt:
        return False
    return run(["cargo", "fetch", "--locked"], os.environ["PATH"], ROOT / "native").returncode == 0


def loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"native_{file.stem}", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
