"""Decode bytes as text, JSON, Avro, Protobuf or hex. If decoding fails, show the reason and hex."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

from ottla.client.failure import Failed

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS: Final = {
    "auto": "Automatic",
    "text": "Text",
    "json": "JSON",
    "avro": "Avro",
    "protobuf": "Protobuf",
    "hex": "Hex",
}
SHOWN_MAX: Final = 1 << 16  # bytes of one value sent to the page
REGISTRY_S: Final = 3.0
SCHEMA_MAX: Final = 100_000
HEX_MAX: Final = 4096
REGISTERED: Final = 5  # bytes before a value whose schema is in a registry


class Decoder:
    """Decodes bytes to text. `schema` is Avro JSON or the text of a .proto file; without it the registry is used."""

    def __init__(self, kind: str = "auto", schema: str = "", message: str = "", registry: str | None = None) -> None:
        if len(schema) > SCHEMA_MAX:
            raise Failed(f"the schema has more than {SCHEMA_MAX:,} characters")
        self._registry = registry
        self._known: dict[int, Callable[[bytes], str]] = {}
        self._decode = self._choose(kind, schema, message)

    def _choose(self, kind: str, schema: str, message: str) -> Callable[[bytes], str]:
        if kind == "avro":
            return self._avro(schema)
        if kind == "protobuf":
            return self._protobuf(schema, message)
        return {"text": text, "json": as_json, "hex": hexadecimal}.get(kind, guess)

    def __call__(self, data: bytes | None) -> str:
        if data is None:
            return "null"
        try:
            return self._decode(data)
        except Failed as error:
            return f"({error}) {hexadecimal(data)}"
        except (ValueError, LookupError, TypeError, EOFError, OverflowError, RecursionError) as error:
            return f"(cannot be decoded: {error}) {hexadecimal(data)}"

    def _avro(self, schema: str) -> Callable[[bytes], str]:
        given = read_avro(schema) if schema.strip() else None
        return lambda data: given(data) if given else self._read_registered(data)

    def _protobuf(self, schema: str, message: str) -> Callable[[bytes], str]:
        made: list[Callable[[bytes], str]] = []

        def decode(data: bytes) -> str:
            if not schema.strip():
                return self._read_registered(data)
            if not made:
                made.append(read_protobuf(schema, message))
            return made[0](data)

        return decode

    def _read_registered(self, data: bytes) -> str:
        """Use the schema id at the start of the value."""
        if self._registry is None:
            raise Failed("give a schema, or start the console with --registry")
        if len(data) < REGISTERED or data[0] != 0:
            raise Failed("this value does not start with a schema id: give a schema")
        number = int.from_bytes(data[1:REGISTERED], "big")
        if number not in self._known:
            from ottla.spark.values.registry import AVRO, PROTOBUF, Registry

            try:
                found = Registry(self._registry, timeout_s=REGISTRY_S).by_id(number)
            except Failed as error:
                self._known[number] = refusing(error)  # fail fast for the next record
                raise
            if found.kind == AVRO:
                self._known[number] = read_avro(found.text)
            elif found.kind == PROTOBUF:
                self._known[number] = registered_protobuf(found)
            else:
                self._known[number] = as_json
        return self._known[number](data[REGISTERED:])


def refusing(error: Failed) -> Callable[[bytes], str]:
    def refuse(data: bytes) -> str:
        raise error

    return refuse


def text(data: bytes) -> str:
    return data[:SHOWN_MAX].decode(errors="replace")


def as_json(data: bytes) -> str:
    return json.dumps(json.loads(data), ensure_ascii=False, indent=2)[:SHOWN_MAX]


def hexadecimal(data: bytes) -> str:
    more = f" … {len(data):,} bytes" if len(data) > HEX_MAX else ""
    return data[:HEX_MAX].hex(" ") + more


def guess(data: bytes) -> str:
    try:
        found = data[:SHOWN_MAX].decode()
    except UnicodeDecodeError:
        cut = len(data) > SHOWN_MAX
        return data[:SHOWN_MAX].decode(errors="replace") if cut else hexadecimal(data)
    return found if all(sign.isprintable() or sign in "\n\r\t" for sign in found[:500]) else hexadecimal(data)


def read_avro(schema: str) -> Callable[[bytes], str]:
    try:
        import fastavro
    except ImportError:
        raise Failed("Avro needs fastavro: pip install 'ottla[spark]'") from None
    try:
        parsed = fastavro.parse_schema(json.loads(schema))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise Failed(f"not a valid Avro schema: {error}") from None
    refuse_endless(parsed)

    def decode(data: bytes) -> str:
        for start in (0, REGISTERED):  # without a registry header, or after it
            some = io.BytesIO(data[start:])
            try:
                value = fastavro.schemaless_reader(some, parsed, None)
            except (ValueError, EOFError, IndexError, LookupError, OverflowError, MemoryError):
                continue
            if some.tell() == len(data) - start:
                return plain(value)
        raise Failed("the value does not fit the schema")

    return decode


def refuse_endless(schema: Any) -> None:
    """Reject arrays of empty items: they take no bytes, so a tiny value could have a billion of them."""
    try:
        from ottla.spark.values.avro_schema import has_endless_arrays
    except ImportError:
        raise Failed("Avro needs more packages: pip install 'ottla[spark]'") from None
    if has_endless_arrays(schema):
        raise Failed("the schema has arrays of empty items, which take no bytes and could be endless")


def read_protobuf(schema: str, message: str) -> Callable[[bytes], str]:
    try:
        from ottla.spark.values.protobuf_schema import message_type, places, protoc
    except ImportError:
        raise Failed("Protobuf needs more packages: pip install 'ottla[spark]'") from None
    files = protoc({"given.proto": schema}, "the schema")
    names = places(files)
    chosen = message or next(iter(names), "")
    if chosen not in names:
        raise Failed(f"the schema has no message {chosen or 'at all'}: it has {', '.join(names) or 'none'}")
    return message_reader(files, chosen, message_type)


def registered_protobuf(source: Any) -> Callable[[bytes], str]:
    from ottla.spark.values.header import message_index
    from ottla.spark.values.protobuf_schema import fetch_files, message_at, message_type

    files = fetch_files(source)

    def decode(data: bytes) -> str:
        index, start = message_index(data)
        name = message_at(files, index)
        if name is None:
            raise Failed("the value names a message that the schema does not have")
        return message_reader(files, name, message_type)(data[start:])

    return decode


def message_reader(files: tuple[bytes, ...], name: str, message_type: Any) -> Callable[[bytes], str]:
    from google.protobuf import json_format, message_factory
    from google.protobuf.message import DecodeError

    made = message_factory.GetMessageClass(message_type(files, name))

    def decode(data: bytes) -> str:
        one = made()
        try:
            one.ParseFromString(data)
        except DecodeError as error:
            raise Failed(f"the value does not fit {name}: {error}") from None
        return plain(json_format.MessageToDict(one, preserving_proto_field_name=True))

    return decode


def plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=spell)[:SHOWN_MAX]


def spell(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
