"""Protobuf descriptors, from wherever they are, and a message as a Spark type.

    a registry           compiled by the registry where it does that (format=serialized), else its text through protoc
    .proto               through the protoc of grpcio-tools; imports are looked up beside it
    .desc, .pb, .binpb   a descriptor set: protoc --include_imports --descriptor_set_out=order.desc order.proto

    int32 sint32 sfixed32; uint32 fixed32        int; bigint
    int64 sint64 sfixed64; uint64 fixed64        bigint; decimal(20, 0)
    float double bool string bytes               float double boolean string binary
    enum                                         string: the name, or the number if the schema does not know it
    repeated, map, message                       array, map, struct; a message that is not there is null
    optional, members of a oneof                 null when not set; any other field has its default then
    google.protobuf.Timestamp, Duration          timestamp, interval day to second
    wrappers (google.protobuf.Int64Value ...)    what they wrap, or null

Only numbers lie in the bytes, so a reader's message reads what an older or newer writer wrote.
"""

from __future__ import annotations

import base64
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from pyspark.sql import types

from ottla.client.failure import Failed
from ottla.spark.values.registry import PROTOBUF, InvalidSchema, Registered

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

COMPILE_S: Final = 60.0
NAME_MAX: Final = 255  # bytes in the name of an import, as for a file name
COMPILED: Final = (".desc", ".pb", ".binpb", ".protoset")
KNOWN: Final = "google/protobuf/"  # files that the runtime includes
WRAPPERS: Final = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
SCALARS: Final[dict[int, types.DataType]] = {  # by FieldDescriptor.cpp_type
    1: types.IntegerType(),
    2: types.LongType(),
    3: types.LongType(),
    4: types.DecimalType(20, 0),
    5: types.DoubleType(),
    6: types.FloatType(),
    7: types.BooleanType(),
    8: types.StringType(),
    9: types.StringType(),
}
BYTES, MESSAGE = 12, 11  # FieldDescriptor.type


@dataclass(frozen=True)
class Schema:
    """A message type with the files that define it, as bytes: it travels to the workers as a value."""

    files: tuple[bytes, ...]  # FileDescriptorProto each, imported files first, the main one last
    name: str
    what: str

    @property
    def descriptor(self) -> Descriptor:
        return message_type(self.files, self.name)

    @property
    def message(self) -> type[Message]:
        return message_factory.GetMessageClass(self.descriptor)  # type: ignore[no-any-return]

    @property
    def index(self) -> tuple[int, ...]:
        """Which message of the file this is, as in the header."""
        return places(self.files)[self.name]


def load(source: Any, message: str | None = None) -> Schema:
    """`message` names one of several; the default is the first of the file."""
    if isinstance(source, Schema):
        return source
    if isinstance(source, Registered):
        files, what = fetch_files(source), str(source)
    else:
        files, what = file_files(source), f"the schema {source}"
    names = list(places(files))
    package = descriptor_pb2.FileDescriptorProto.FromString(files[-1]).package
    if not names:
        raise InvalidSchema(f"{what} defines no message")
    if message is None:
        return Schema(files, names[0], what)
    for name in names:
        if message in (name, name.removeprefix(f"{package}.")):
            return Schema(files, name, what)
    raise InvalidSchema(f"{what} has no message {message}: it has {', '.join(names)}")


@lru_cache(256)
def places(files: tuple[bytes, ...]) -> dict[str, tuple[int, ...]]:
    """The messages of the main file by name, each with its index at each level of nesting."""
    main = descriptor_pb2.FileDescriptorProto.FromString(files[-1])
    found: dict[str, tuple[int, ...]] = {}
    todo: list[tuple[str, Any, tuple[int, ...]]] = [(main.package, main.message_type, ())]
    while todo:
        scope, level, path = todo.pop(0)
        for index, message in enumerate(level):
            if not message.options.map_entry:
                name = f"{scope}.{message.name}" if scope else message.name
                found[name] = (*path, index)
                todo.append((name, message.nested_type, (*path, index)))
    return found


def message_at(files: tuple[bytes, ...], index: tuple[int, ...]) -> str | None:
    """The name of the message that a header's list of indexes refers to; None if there is none."""
    return next((name for name, place in places(files).items() if place == index), None)


@lru_cache(256)
def pool(files: tuple[bytes, ...]) -> Any:
    made = descriptor_pool.DescriptorPool()
    try:
        for file in files:
            made.AddSerializedFile(file)
    except (TypeError, ValueError, DecodeError) as error:
        raise InvalidSchema(
            f"these are not Protobuf descriptors, or some of their imports are missing: {error}"
        ) from None
    return made


@lru_cache(256)
def message_type(files: tuple[bytes, ...], name: str) -> Descriptor:
    return pool(files).FindMessageTypeByName(name)


# --- where descriptors come from -------------------------------------------------------------------------------------


def fetch_files(source: Registered) -> tuple[bytes, ...]:
    """The schema and all that it imports, compiled by the registry if it can, otherwise here."""
    if source.kind != PROTOBUF:
        raise InvalidSchema(
            f"{source} of {source.registry} is {source.kind}, which ottla.spark.values.{source.kind.lower()} reads"
        )
    key = (source.registry, source.id)
    if key not in COMPILED_BY_ID:
        parts = {**source.collect_references(), f"schema-{source.id}.proto": source}
        for name in parts:
            check_name(name, source)
        compiled = {name: serialize(part, name) for name, part in parts.items()}
        if all(compiled.values()):
            COMPILED_BY_ID[key] = add_known([file for file in compiled.values() if file])
        else:
            COMPILED_BY_ID[key] = protoc({name: part.text for name, part in parts.items()}, str(source))
    return COMPILED_BY_ID[key]


COMPILED_BY_ID: dict[Any, tuple[bytes, ...]] = {}


def check_name(name: str, source: Registered) -> None:
    """Sources are compiled as files of these names, and a registry must not choose paths on this machine."""
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or {"", ".", ".."} & set(parts) or len(name.encode()) > NAME_MAX:
        raise InvalidSchema(
            f"{source} refers to {name!r}, which is not a valid import name (no leading slash, no '..'): "
            f"register the reference under the name that the import has"
        )


def serialize(source: Registered, name: str) -> bytes | None:
    """A file of a registry as a FileDescriptorProto, under the name by which others import it."""
    file = from_base64(source.text) or from_base64(source.registry.fetch_serialized(source.id) or "")
    if file is None:
        return None
    file.name = name
    return bytes(file.SerializeToString())


def from_base64(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    return file if file.message_type or file.enum_type or file.dependency else None


def file_files(source: Any) -> tuple[bytes, ...]:
    path = Path(source)
    try:
        if path.suffix not in COMPILED:
            return protoc({path.name: path.read_text()}, f"the schema {path}", beside=path.parent)
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSchema(f"cannot read the schema {path}: {error}") from None
    except DecodeError:
        raise InvalidSchema(
            f"{path} is not a descriptor set: make it with protoc --include_imports --descriptor_set_out={path.name}"
        ) from None
    if not files:
        raise InvalidSchema(f"{path} is an empty descriptor set")
    return add_known([file.SerializeToString() for file in files])


def add_known(files: list[bytes]) -> tuple[bytes, ...]:
    """With Google's own files first, which need not be given; imports before those that import them."""
    protos = {proto.name: proto for proto in map(descriptor_pb2.FileDescriptorProto.FromString, files)}
    ordered: dict[str, bytes] = {}
    begun: set[str] = set()

    def put(name: str) -> None:
        if name in ordered:
            return
        if name in begun:
            raise InvalidSchema(f"the import {name} imports itself, directly or not: remove one of the imports")
        begun.add(name)
        proto = protos.get(name)
        if proto is None:
            if not name.startswith(KNOWN):
                raise InvalidSchema(f"the import {name} is missing: hand it over too (protoc --include_imports)")
            proto = known_file(name)
        for other in proto.dependency:
            put(other)
        ordered[name] = proto.SerializeToString()

    for name in protos:
        put(name)
    main = descriptor_pb2.FileDescriptorProto.FromString(files[-1]).name
    ordered[main] = ordered.pop(main)
    return tuple(ordered.values())


def known_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    import importlib

    module = f"google.protobuf.{name.removeprefix(KNOWN).removesuffix('.proto')}_pb2"
    try:
        file = importlib.import_module(module).DESCRIPTOR
    except ImportError:
        raise InvalidSchema(f"the import {name} is missing: hand it over too (protoc --include_imports)") from None
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    return proto


def protoc(texts: dict[str, str], what: str, beside: Path | None = None) -> tuple[bytes, ...]:
    """Compile sources by name; the last one is the main one."""
    try:
        from grpc_tools import protoc as compiler
    except ImportError:
        raise Failed(
            f"{what} is Protobuf source, which needs a compiler: pip install grpcio-tools, "
            f"or give a descriptor set made with protoc --include_imports --descriptor_set_out=file.desc"
        ) from None
    import grpc_tools

    with tempfile.TemporaryDirectory(prefix="ottla-protoc-") as name:
        folder = Path(name)
        try:
            for file, text in texts.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(text, encoding="utf-8")
        except (FileExistsError, NotADirectoryError, IsADirectoryError, UnicodeEncodeError) as error:
            reason = str(error).replace(f"{folder}/", "")  # one name is another's folder, or has half a character
            raise InvalidSchema(f"{what} cannot be written to files for compiling: {reason}") from None
        main = list(texts)[-1]
        output = folder / "all.desc"
        known = Path(grpc_tools.__file__).parent / "_proto"
        paths = [f"-I{place}" for place in (folder, beside, known) if place]
        said = run_protoc(compiler, [*paths, "--include_imports", f"--descriptor_set_out={output}", str(folder / main)])
        if said is not None:
            raise InvalidSchema(f"{what} does not compile: {said.replace(f'{folder}/', '')}")
        return add_known([
            file.SerializeToString()
            for file in descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file
        ])  # fmt: skip


def run_protoc(compiler: Any, arguments: list[str]) -> str | None:
    """In a separate process, since the compiler writes errors to standard error. None if there are none."""
    import subprocess
    import sys

    command = [sys.executable, "-m", compiler.__name__, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=COMPILE_S)
    except subprocess.TimeoutExpired:
        raise Failed(
            f"the Protobuf compiler did not finish in {COMPILE_S:.0f} seconds: is this machine overloaded?"
        ) from None
    if done.returncode == 0:
        return None
    return " ".join(done.stderr.decode(errors="replace").split())


# --- as Spark types --------------------------------------------------------------------------------------------------


def spark_type(message: Descriptor, within: tuple[str, ...] = ()) -> types.DataType:
    name = message.full_name
    if name == TIMESTAMP:
        return types.TimestampType()
    if name == DURATION:
        return types.DayTimeIntervalType()
    if name in WRAPPERS:
        return field_type(message.fields_by_name["value"], within)
    if name in within:
        raise InvalidSchema(
            f"the message {name} is recursive, but a Spark type cannot be: "
            f"read it with a schema without that field, or of limited depth"
        )
    fields = [types.StructField(field.name, whole_type(field, (*within, name))) for field in message.fields]
    return types.StructType(fields)


def whole_type(field: FieldDescriptor, within: tuple[str, ...]) -> types.DataType:
    if is_map(field):
        entry = field.message_type.fields_by_name
        return types.MapType(field_type(entry["key"], within), field_type(entry["value"], within))
    return types.ArrayType(field_type(field, within)) if is_repeated(field) else field_type(field, within)


def field_type(field: FieldDescriptor, within: tuple[str, ...]) -> types.DataType:
    if field.message_type is not None:
        return spark_type(field.message_type, within)
    return types.BinaryType() if field.type == BYTES else SCALARS[field.cpp_type]


def is_repeated(field: FieldDescriptor) -> bool:
    repeated = getattr(field, "is_repeated", None)  # a property of newer runtimes; older ones have labels
    return bool(field.label == field.LABEL_REPEATED) if repeated is None else bool(repeated)


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry) and is_repeated(field)
