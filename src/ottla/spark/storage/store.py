"""A folder at a location: files that appear whole, names that only one process can create, moves, and listings.

    put      write a small file, replacing an existing one: readers see the old one or the new one
    create   write a small file under a new name; if several try at once, one gets True
    output   a stream for a large file under a name that readers ignore, to be moved to its place later
    move     to another name, replacing what was there

On a file system these are renames and links. A store without rename works differently: an object appears when all of it
has arrived, `create` is a conditional put (through obstore: S3, Google and Azure support it), and a move is a copy
inside the store, which appears atomically, and a removal. Names are relative to the location, with slashes.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

from ottla.client.failure import Failed
from ottla.spark.storage.location import OBJECTS, first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ottla.spark.storage.location import Location

HIDDEN: Final = "_ottla"  # readers of tables ignore names with this prefix
COPIED_MAX: Final = 5 << 30  # S3 cannot copy a larger object in one request
TOGETHER: Final = 8  # concurrent moves
TROUBLE: Final = (OSError, pa.ArrowException)
FULL: Final = {errno.ENOSPC, errno.EDQUOT}


def unwritable(place: object, error: Exception) -> str:
    """What to do if one of TROUBLE keeps a task from writing files, in a sentence."""
    reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    full = getattr(error, "errno", None) in FULL
    todo = "make room there, and start again" if full else "it must be a place that all workers share"
    return f"files cannot be written to {place} ({reason}): {todo}"


class Found(NamedTuple):
    name: str
    size: int
    changed: float  # seconds since 1970


class Store:
    def __init__(self, location: Location) -> None:
        self.location = location
        self.local = location.local
        self.renames = location.kind not in OBJECTS
        self._fs, self._base = location.filesystem()

    def __str__(self) -> str:
        return str(self.location)

    def path(self, name: str) -> Path:
        assert self.local is not None, "only a folder of this machine has paths"
        return self.local / name

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if there is none."""
        try:
            with self.input(name) as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            return None

    def input(self, name: str) -> Any:
        """A file with random access; FileNotFoundError if there is none."""
        with explain_errors(self, "read"):
            return self._fs.open_input_file(self._at(name))

    def output(self, name: str) -> Any:
        """A stream for a new file, which appears when it is closed."""
        with explain_errors(self, "written"):
            if self.local is not None:
                self.path(name).parent.mkdir(parents=True, exist_ok=True)
                return self.path(name).open("wb")
            self._make_folder(name)
            return self._fs.open_output_stream(self._at(name))

    def put(self, name: str, data: bytes) -> None:
        with explain_errors(self, "written"):
            if not self.renames:
                with self._fs.open_output_stream(self._at(name)) as output:
                    output.write(data)
                return
            draft = f"{name}.{uuid.uuid4().hex}.new"
            if "/" in name:  # a name that begins with _ is not part of a table
                folder, _, last = name.rpartition("/")
                draft = f"{folder}/_{last}.{uuid.uuid4().hex}.new"
            with self.output(draft) as output:
                output.write(data)
            self._rename(draft, name)

    def create(self, name: str, data: bytes) -> bool:
        """Whether the name is ours. If the response was lost and the request repeated, the data shows whose it is."""
        with explain_errors(self, "written"):
            return self._create(name, data) or self.read(name) == data

    def exists(self, name: str = "") -> bool:
        with explain_errors(self, "read"):
            found: bool = self._fs.get_file_info(self._at(name)).type.name != "NotFound"
            return found

    def files(self, folder: str = "") -> list[Found]:
        """All files below a folder, sorted by name; none if it does not exist."""
        from pyarrow import fs

        with explain_errors(self, "read"):
            chosen = fs.FileSelector(self._at(folder), recursive=True, allow_not_found=True)
            there = [one for one in self._fs.get_file_info(chosen) if one.type == fs.FileType.File]
        start = len(self._base) + 1
        return sorted(
            Found(one.path[start:], one.size, (one.mtime_ns or 0) / 1e9) for one in there if not one.path.endswith("/")
        )

    def move(self, source: str, target: str) -> None:
        """Raises FileNotFoundError if there is no source."""
        if source == target:
            return
        with explain_errors(self, "written"):
            if self.renames:
                self._rename(source, target)
                return
            try:
                self._fs.copy_file(self._at(source), self._at(target))
            except TROUBLE:
                if not self.exists(source):
                    raise FileNotFoundError(source) from None
                raise
            self._fs.delete_file(self._at(source))

    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Several at a time if a move is a copy."""
        if self.renames:
            for source, target in pairs:
                self.move(source, target)
            return
        with ThreadPoolExecutor(TOGETHER) as pool:
            for done in [pool.submit(self.move, source, target) for source, target in pairs]:
                done.result()

    def remove(self, name: str) -> None:
        with explain_errors(self, "written"), suppress(FileNotFoundError):
            self._fs.delete_file(self._at(name))

    def remove_folder(self, name: str) -> None:
        """Best effort: leftovers do no harm."""
        if self.local is not None:
            shutil.rmtree(self.path(name), ignore_errors=True)
            return
        with suppress(*TROUBLE):
            self._fs.delete_dir(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base

    def _make_folder(self, name: str) -> None:
        """A bucket has no folders, only names with slashes."""
        if self.renames and "/" in name:
            self._fs.create_dir(self._at(name.rpartition("/")[0]), recursive=True)

    def _rename(self, source: str, target: str) -> None:
        if self.local is not None:
            self.path(target).parent.mkdir(parents=True, exist_ok=True)
            self.path(source).replace(self.path(target))
            return
        self._make_folder(target)
        if self.location.kind == "hdfs" and self.exists(target) and self.exists(source):
            self._fs.delete_file(self._at(target))
        self._fs.move(self._at(source), self._at(target))

    def _create(self, name: str, data: bytes) -> bool:
        kind = self.location.kind
        if kind in OBJECTS:
            return put_new(self.location, name, data)
        if kind == "fsspec":
            self._make_folder(name)
            try:
                create_through(self._fs.handler.fs, self._at(name), data)
            except FileExistsError:
                return False
            return True
        draft = f"{name}.{uuid.uuid4().hex}.new"
        with self.output(draft) as output:
            output.write(data)
            if self.local is not None:
                output.flush()
                os.fsync(output.fileno())
        try:
            if self.local is not None:
                os.link(self.path(draft), self.path(name))
            elif self.exists(name):
                return False
            else:
                self._fs.move(self._at(draft), self._at(name))  # HDFS refuses it if the name is taken
        except FileExistsError:
            return False
        finally:
            self.remove(draft)
        return True


def create_through(files: Any, path: str, data: bytes) -> None:
    """Create a file with fsspec; FileExistsError if the name is taken.

    fsspec checks first and then writes, so two may check at the same time. If a file system has nothing better, its
    files are opened in a mode that lets only one create them.
    """
    from fsspec import AbstractFileSystem

    if getattr(files.pipe_file, "__func__", None) is not AbstractFileSystem.pipe_file:
        files.pipe_file(path, data, mode="create")
        return
    with files.open(path, "xb") as output:
        output.write(data)


def put_new(location: Location, name: str, data: bytes) -> bool:
    """A put that the store refuses if the name is taken."""
    try:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError
        from obstore.store import from_url
    except ModuleNotFoundError:
        raise Failed(
            f"Parquet tables at {location.scheme}:// need obstore: pip install 'ottla[storage]', or set format=delta"
        ) from None
    options = location.object_options()
    plain = options.pop("aws_allow_http", None) is not None
    given: dict[str, Any] = {"config": options}  # the options depend on the kind of store
    if plain:
        given["client_options"] = {"allow_http": True}
    try:
        store = from_url(location.root, **given)
        obstore.put(store, f"{location.path}/{name}", data, mode="create")
    except (AlreadyExistsError, FileExistsError):
        return False
    except (BaseError, OSError) as error:
        raise Failed(f"{location} cannot be written ({first_line(error)})") from None
    return True


@contextmanager
def explain_errors(store: Store, what: str) -> Iterator[None]:
    """Turn errors of a remote store into a sentence. Those of the local disk stay OSErrors: callers check their
    codes."""
    try:
        yield
    except FileNotFoundError:
        raise
    except TROUBLE as error:
        if store.local is not None:
            raise
        raise Failed(f"{store} cannot be {what} ({first_line(error)})") from None
