"""Rules of this repository that no other tool checks: imports between packages, access to time, randomness, disk and
network, and which files are tracked.

They read the code with `ast`, so that spelling does not matter. Sizes and missing test files are only printed
as a hint (`make check` shows them).
"""

import ast
import hashlib
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "ottla"

SHARED_MAX = 66  # pairs of places with six or more lines in common
# Imports point one way. Each package may import itself and those named here; satellites without an entry may import
# everything.
GROUND = {"errors", "clock", "descriptors", "disk", "config", "steps"}
ARROWS = {
    "errors": set[str](),
    "clock": set[str](),
    "descriptors": set[str](),
    "disk": set[str](),
    "steps": {"errors"},
    "config": {"errors"},
    "wire": {"errors"},
    "security": GROUND | {"wire", "client"},  # the broker reads keys and certificates with the client's code
    "records": {"errors", "config"},
    "log": GROUND | {"records"},
    "cluster": GROUND | {"wire", "security"},
    "quota": {"errors"},
    "replica": GROUND | {"wire", "records", "log", "cluster"},
    "coord": GROUND | {"wire", "records", "log", "cluster", "replica"},
    "handlers": GROUND | {"security", "wire", "records", "log", "cluster", "quota", "replica", "coord", "telemetry"},
    "net": GROUND | {"security", "wire", "quota", "handlers"},
    "founding": GROUND | {"security", "log", "cluster", "replica"},
    "telemetry": GROUND | {"wire", "records", "log", "cluster", "replica", "coord"},
    "metrics": GROUND | {"wire", "telemetry", "log", "cluster", "replica", "coord", "handlers", "net", "founding"},
    "broker": GROUND
    | {
        "security",
        "wire",
        "records",
        "log",
        "cluster",
        "replica",
        "coord",
        "handlers",
        "net",
        "founding",
        "telemetry",
        "metrics",
    },
    # Not part of the broker: code that talks to any cluster depends on the wire format only, not on the broker.
    "client": {"errors", "wire", "records"},
    "spark": {"errors", "wire", "records", "client"},
}
# Pure state machines import only errors, messages and each other, whatever their package may import. DRIVERS are the
# files in the same packages that run them.
PURE = (
    "cluster/control/",
    "cluster/image.py",
    "cluster/metadata_store.py",
    "cluster/placement.py",
    "cluster/topic_names.py",
    "cluster/versioned.py",
    "cluster/znodes.py",
    "coord/machine.py",
    "coord/formats.py",
    "coord/patterns.py",
    "coord/groups/",
    "coord/transactions/",
    "quota/",
)
DRIVERS = {
    "cluster/control/awaiting.py",
    "cluster/control/changes.py",
    "cluster/control/channel.py",
    "cluster/control/departure.py",
    "cluster/control/driver.py",
    "cluster/control/engine.py",
    "cluster/control/office.py",
    "cluster/control/performer.py",
    "coord/groups/coordinator.py",
    "coord/transactions/coordinator.py",
    "coord/transactions/ending.py",
    "coord/transactions/markers.py",
    "coord/transactions/verification.py",
}
PURE_ARROWS = {"errors", "wire"}
SATELLITES = {
    "__init__",
    "__main__",
    "client",
    "console",
    "demo",
    "embed",
    "faults",
    "data_folder",
    "garbage",
    "logging_setup",
    "notify",
    "pytest_plugin",
    "serve",
    "sim",
    "size",
    "spark",
    "testing",
    "tools",
}

# Decisions take time, randomness, disk and network as parameters. The modules that provide these, and the files that
# may use them.
WORLD = {
    "clock": {"time", "datetime", "sched"},
    "chance": {"random", "secrets", "uuid"},
    "disk": {"shutil", "tempfile", "mmap", "sqlite3", "io", "fcntl", "glob"},
    "network": {"socket", "ssl", "select", "selectors", "http", "urllib", "subprocess"},
}
HARMLESS = {"urllib.parse"}  # only handles text, unlike its siblings
TOUCHES = {
    "clock": re.compile(r"os\.times|\w+\.now|\w+\.utcnow"),
    "chance": re.compile(r"os\.urandom"),
    "disk": re.compile(
        r"open|os\.(open|read|pread|write|writev|pwrite|fsync|truncate|ftruncate|rename|replace|remove|unlink|mkdir|makedirs"
        r"|listdir|scandir|stat|statvfs|link|symlink)|\w+\.(read_text|read_bytes|write_text|write_bytes|touch|rmdir|iterdir)"
    ),
    "network": re.compile(
        r"asyncio\.(open_connection|start_server)|\w+\.(create_server|create_connection|getaddrinfo)"
    ),
}
ADAPTORS = {
    "clock": {"clock.py", "metrics/process.py"},
    "chance": {"broker.py"},  # generates a cluster id when there is none
    "disk": {
        "descriptors.py",
        "disk.py",
        "cluster/sqlite_store.py",
        "cluster/journal.py",
        "log/segment.py",
        "metrics/process.py",
        "log/index.py",
        "net/encrypted.py",
        "net/outbox.py",
        "net/receiver.py",
        "security/certificates.py",
        "security/keys.py",
    },  # net: sendfile, plain reads where it is not possible, and mapped memory
    "network": {
        "cluster/kazoo_thread.py",
        "cluster/peers.py",
        "metrics/http.py",
        "net/buffer.py",
        "net/connection.py",
        "net/outbox.py",
        "net/listener.py",
        "security/certificates.py",
        "security/handshake.py",
        "security/keys.py",
        "security/stream.py",
        "broker.py",
    },  # broker.py looks up the host name
}
# Where a task, a thread or a request begins: unexpected exceptions are caught and logged there.
ROOTS = {
    "net/connection.py",
    "net/dispatch.py",
    "net/turns.py",
    "security/handshake.py",  # a thread whose failure nobody else would see
    "handlers/finishing.py",  # a future that a client waits for
    "metrics/http.py",
    "replica/waits.py",
    "coord/runtime.py",
    "log/store.py",
    "steps.py",
    "cluster/live_configs.py",
    "cluster/registration.py",
    "cluster/kazoo_thread.py",
    "embed.py",
    "sim/loop.py",
    "console/watch/watching.py",
    "demo/parts.py",  # opening is a task for each log
}

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/\w")
# Package registries by digest, so that their host names are not in this file either: those of Python (and its files),
# Maven (and Apache's), Go, npm and Debian. Registries and mirrors are configured on the machine, not here.
REGISTRIES = {
    "a4aa2ac280bb8d1a",
    "8b5bb5eb9d758455",
    "c3db8466ffcd8589",
    "41b464c047c28da2",
    "00a7dc5a0cc38858",
    "8743857e3ea00fd1",
    "75adac515f0bd3db",
}
HOST = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+")
OPTIMISED = re.compile(r"python[\w.]*\s+(?:-\w+\s+)*-O|PYTHONOPTIMIZE")
STEP = re.compile(r"^(\d+)\. `([\w/]+\.py):([\w.]+)` ", re.MULTILINE)
TEXT_SIZE_MAX = 1_000_000


def test_imports_point_one_way() -> None:
    wrong = []
    for path in sources():
        package = belongs_to(path)
        if package in SATELLITES - ARROWS.keys():
            continue
        assert package in ARROWS, f"{name(path)}: a new part of the broker needs its place in ARROWS, at the top here"
        allowed = PURE_ARROWS if is_pure(name(path)) else ARROWS[package]
        wrong += [
            f"{name(path)}:{line} imports ottla.{module}; it may import {', '.join(sorted(allowed)) or 'nothing'}"
            for module, line in imported(path)
            if not may_import(path, module)
        ]
    assert not wrong, f"imports point one way (ARROWS and PURE at the top of this file):\n{listed(wrong)}"


def may_import(path: Path, module: str) -> bool:
    target = module.partition(".")[0]
    if is_pure(name(path)):
        return target in PURE_ARROWS or is_pure(f"{module.replace('.', '/')}.py")
    return target == belongs_to(path) or target in ARROWS[belongs_to(path)]


def is_pure(file: str) -> bool:
    return file.startswith(PURE) and file not in DRIVERS


@pytest.mark.parametrize("what", WORLD)
def test_only_adaptors_touch_the_world(what: str) -> None:
    wrong = [
        f"{name(path)}:{line} uses {how}"
        for path in sources()
        if belongs_to(path) not in SATELLITES and name(path) not in ADAPTORS[what]
        for how, line in touches(path, what)
    ]
    assert not wrong, f"take the {what} as a parameter, as the adaptors' callers do:\n{listed(wrong)}"


def test_exemptions_are_for_files_that_exist() -> None:
    """A stale exemption would silently apply to a new file of that name."""
    exempt = [*PURE, *DRIVERS, *ROOTS, *(file for files in ADAPTORS.values() for file in files)]
    assert not [file for file in exempt if not (SOURCE / file).exists()]


def test_errors_are_caught_by_name() -> None:
    """Only the root of a task may catch everything, or code that cleans up and raises again."""
    wrong = [
        f"{name(path)}:{node.lineno}"
        for path in sources()
        if name(path) not in ROOTS
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler) and catches_all(node) and not raises_again(node)
    ]
    assert not wrong, f"name the errors that you expect, or raise again; the rest is for ROOTS:\n{listed(wrong)}"


def test_every_module_says_what_it_is() -> None:
    silent = [name(path) for path in sources() if path.stat().st_size and not ast.get_docstring(tree(path))]
    assert not silent, f"no docstring at the top of:\n{listed(silent)}"


def test_assertions_stay_on() -> None:
    assert __debug__, "a broken promise must stop the partition: never run with -O"
    assert not [file.name for file in tracked() if file.suffix not in (".md", ".py") and OPTIMISED.search(text(file))]


def test_generated_pages_are_fresh() -> None:
    docs = script("docs")
    stale = [page for page, content in docs.pages().items() if text(ROOT / page) != content]
    assert not stale, f"run `make docs`, or `python scripts/docs.py` if all is set up:\n{listed(stale)}"


def test_walks_go_through_functions_that_exist() -> None:
    """The walks in docs/tour.md: numbered from 1, and no function twice."""
    chapter = text(ROOT / "docs" / "tour.md").partition("\n## Four walks\n")[2].partition("\n## ")[0]
    walks = chapter.split("\n### ")[1:]
    assert len(walks) == 4
    for walk in walks:
        steps = STEP.findall(walk)
        title, places = walk.splitlines()[0], [f"{file}:{function}" for _, file, function in steps]
        assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1)), f"{title}: count anew"
        assert len(set(places)) == len(places), f"{title}: a step is there twice"
        gone = [
            f"{file}:{function}"
            for _, file, function in steps
            if not (SOURCE / file).is_file() or not defines(tree(SOURCE / file), function.split("."))
        ]
        assert not gone, f"docs/tour.md, {title}: not in src/ottla any more:\n{listed(gone)}"


def defines(node: ast.AST, path: list[str]) -> bool:
    """Whether a module or class has this function, or this class with that method."""
    if not path:
        return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    named = (one for one in ast.iter_child_nodes(node) if getattr(one, "name", None) == path[0])
    return any(defines(one, path[1:]) for one in named)


def test_only_text_is_kept() -> None:
    wrong = [
        str(file.relative_to(ROOT))
        for file in tracked()
        if ("\0" in text(file) and not is_picture(file)) or file.stat().st_size > TEXT_SIZE_MAX
    ]
    assert not wrong, listed(wrong)


def is_picture(file: Path) -> bool:
    """Screenshots of the console's pages, made by its tests."""
    return file.parent == ROOT / "docs" / "images" and file.suffix == ".png"


def test_nothing_is_tied_to_one_machine() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for file in tracked()
        for number, line in enumerate(text(file).splitlines(), 1)
        if MACHINE_PATH.search(line) or any(names_registry(host) for host in HOST.findall(line.lower()))
    ]
    assert not wrong, listed(wrong)


def test_registries_are_found_by_any_of_their_hosts() -> None:
    registry = ".".join(("files", "python" + "hosted", "org"))
    assert names_registry(registry)
    assert not names_registry("docs.example.org")


@cache
def names_registry(host: str) -> bool:
    labels = host.split(".")
    domains = (".".join(labels[first:]) for first in range(len(labels) - 1))
    return any(hashlib.sha256(domain.encode()).hexdigest()[:16] in REGISTRIES for domain in domains)


def test_the_suite_begins_with_format_lint_and_types() -> None:
    plan = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    order = [plan.index(step) for step in ("ruff format --check .", "ruff check .", "mypy --strict", "-m pytest")]
    assert order == sorted(order)
    assert text(ROOT / ".ci" / "run").splitlines()[-1] == "make test"


def test_the_version_is_said_once_and_repeated_right() -> None:
    import ottla

    elsewhere = text(ROOT / "pyproject.toml") + text(ROOT / "native" / "Cargo.toml")
    assert not re.findall(r"^version *=", elsewhere, re.MULTILINE), "src/ottla/__init__.py has it"
    assert f"## {ottla.__version__}" in text(ROOT / "CHANGELOG.md")


def test_sizes_are_looked_at() -> None:
    files = sorted(((len(path.read_text().splitlines()), name(path)) for path in sources()), reverse=True)
    functions = sorted(
        (
            (node.end_lineno - node.lineno + 1, f"{name(path)}:{node.lineno} {node.name}")
            for path in sources()
            for node in ast.walk(tree(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
        ),
        reverse=True,
    )
    untested = [
        name(path)
        for path in sources()
        if path.stat().st_size
        and not name(path).startswith("wire/messages/")
        and path.name != "__init__.py"
        and not its_test(path).exists()
    ]
    print("\nlargest files:\n" + listed(f"{size:5} {file}" for size, file in files[:8]))
    print("largest functions:\n" + listed(f"{size:5} {function}" for size, function in functions[:8]))
    print("without a test file of their own:\n" + listed(untested))
    assert files
    assert functions


def its_test(path: Path) -> Path:
    relative = path.relative_to(SOURCE)
    return ROOT / "tests" / relative.parent / f"test_{relative.stem.strip('_')}.py"


@cache
def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / file for file in listing.split("\0") if file and (ROOT / file).is_file()]


@cache
def text(file: Path) -> str:
    """The content of a tracked file; a NUL, which no text has, if it is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return "\0"


def name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def belongs_to(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Modules of Ottla that a module imports, anywhere in it, also only for the type checker."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name(path)}:{node.lineno}: imports are written in full"
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [module if is_module(module) else node.module or "" for module in named]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            if module.startswith("ottla."):
                yield module.removeprefix("ottla."), node.lineno


def is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def touches(path: Path, what: str) -> Iterator[tuple[str, int]]:
    for node in runtime(tree(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            worldly = [module for module in modules if module.split(".")[0] in WORLD[what] and module not in HARMLESS]
            yield from ((module, node.lineno) for module in worldly)
        elif isinstance(node, ast.Call) and TOUCHES[what].fullmatch(called := ast.unparse(node.func)):
            yield f"{called}()", node.lineno


def runtime(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only the type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from runtime(child)


def catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or bool(re.search(r"\b(Base)?Exception\b", ast.unparse(handler.type)))


def raises_again(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None


def test_no_more_places_share_their_lines() -> None:
    """docs/design/007-shared-lines.md says why the existing ones stay; a few more are allowed for a good reason."""
    found = script("duplicates").find_pairs()
    print(f"{len(found)} pairs of places share six or more lines")
    shown = listed([f"{pair.lines} lines: {pair.first} {pair.second}" for pair in found])
    assert len(found) <= SHARED_MAX, f"{len(found)} pairs; make one of what you have added:\n{shown}"


def script(stem: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(stem, ROOT / "scripts" / f"{stem}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed(lines: "Iterator[str] | list[str]") -> str:
    return "\n".join(f"  {line}" for line in lines)
