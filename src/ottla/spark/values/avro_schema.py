"""An Avro schema as a tree with every name resolved, and that tree as a Spark type.

    boolean int long float double string bytes   boolean int bigint float double string binary
    date                                         date
    timestamp-millis, -micros, -nanos            timestamp (Spark's has microseconds: nanoseconds are cut)
    local-timestamp-...                          timestamp_ntz
    decimal on bytes or fixed                    decimal(precision, scale), precision up to 38
    uuid, enum                                   string
    time-millis, time-micros, duration, fixed    as they lie beneath: int, bigint, binary, binary
    record, array, map                           struct, array, map
    ["null", X]                                  X; every field may be null, since a record that cannot be read is
    ["int", "long"], ["float", "double"]         bigint, double
    any other union                              struct<member0, member1, ...>, one of them set, as Spark's from_avro

Logical types are read off the reader's schema alone, as Avro wants it: beneath them the bytes are the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types

from ottla.spark.values.registry import AVRO, InvalidSchema, Registered, schema_text

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIMITIVE: Final[dict[str, types.DataType]] = {
    "null": types.NullType(),
    "boolean": types.BooleanType(),
    "int": types.IntegerType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "bytes": types.BinaryType(),
    "string": types.StringType(),
}
NAMED: Final = ("record", "error", "enum", "fixed")
TIMESTAMPS: Final = {  # (multiply by, divide by) to get microseconds
    "timestamp-millis": (1000, 1),
    "timestamp-micros": (1, 1),
    "timestamp-nanos": (1, 1000),
}
TIMESTAMPS_BY_NAME: Final = {**TIMESTAMPS, **{f"local-{name}": scale for name, scale in TIMESTAMPS.items()}}
DECIMAL_PRECISION_MAX: Final = 38
WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
NUMBERS: Final = ("int", "long", "float", "double")
MARK: Final = "ottla-told"  # Ottla's own logical type, by which fastavro reports what a value was read as


@dataclass(frozen=True)
class SchemaNode:
    """One type of a schema: a primitive, or composed of others."""

    kind: str
    name: str = ""  # of a record, enum or fixed, with its namespace
    logical: str = ""
    fields: tuple[tuple[str, SchemaNode, bool], ...] = ()  # of a record: name, type, has a default
    items: SchemaNode | None = None  # of an array or a map
    branches: tuple[SchemaNode, ...] = ()  # of a union
    precision: int = 0
    scale: int = 0

    @cached_property
    def value(self) -> SchemaNode:
        """Itself; or, for a union with null or of two widths of a number, the type it amounts to."""
        if self.kind != "union":
            return self
        branches = [branch for branch in self.branches if branch.kind != "null"]
        if len(branches) == 1:
            return branches[0]
        wider = WIDER.get(frozenset(branch.logical or branch.kind for branch in branches))
        return SchemaNode(wider) if wider else SchemaNode("union", branches=tuple(branches))

    @cached_property
    def parts(self) -> list[SchemaNode]:
        """The types it is composed of."""
        return [field for _, field, _ in self.fields] + list(self.branches) + ([self.items] if self.items else [])

    @cached_property
    def optional(self) -> bool:
        return self.kind == "null" or any(branch.kind == "null" for branch in self.branches)

    @cached_property
    def label(self) -> str:
        """The name that distinguishes this branch of a union from the others."""
        return self.name or self.kind

    def spark_type(self) -> types.DataType:
        node = self.value
        if node.kind == "record":
            return types.StructType([types.StructField(name, field.spark_type()) for name, field, _ in node.fields])
        if node.kind == "union":
            named = enumerate(node.branches)
            return types.StructType([types.StructField(f"member{at}", branch.spark_type()) for at, branch in named])
        if node.kind == "array":
            assert node.items
            return types.ArrayType(node.items.spark_type())
        if node.kind == "map":
            assert node.items
            return types.MapType(types.StringType(), node.items.spark_type())
        if node.logical == "decimal":
            return types.DecimalType(node.precision, node.scale)
        if node.logical == "date":
            return types.DateType()
        if node.logical in TIMESTAMPS_BY_NAME:
            return types.TimestampNTZType() if node.logical.startswith("local") else types.TimestampType()
        return PRIMITIVE[{"enum": "string", "fixed": "bytes"}.get(node.kind, node.kind)]


@dataclass(frozen=True)
class Schema:
    """A parsed schema. `plain` is its form in JSON values for fastavro."""

    text: str
    what: str  # for messages: its name, or its id in the registry

    @cached_property
    def json(self) -> Any:
        try:
            return json.loads(self.text)
        except ValueError:
            if self.text in PRIMITIVE:
                return self.text
            raise InvalidSchema(
                f"{self.what} is not an Avro schema, since it is not JSON: {self.text[:80]!r}"
            ) from None

    @cached_property
    def tree(self) -> SchemaNode:
        return Reader(self.what).node(self.json, "", ())

    @cached_property
    def plain(self) -> Any:
        """Without logical types, except decimals: dates and timestamps stay numbers until they are Arrow columns."""
        return strip(self.json)


def load(source: Any) -> Schema:
    """A schema from a file, a text, JSON values, or a registry, with its references inlined."""
    if isinstance(source, Schema):
        return source
    if isinstance(source, Registered):
        return load_registered(source)
    text, _ = schema_text(source)
    return Schema(text, f"the schema {source}" if len(str(source)) < 80 else "the schema")


@lru_cache(256)
def load_registered(source: Registered) -> Schema:
    """Cached by id in each process, because references are fetched again each time."""
    if source.kind != AVRO:
        raise InvalidSchema(
            f"{source} of {source.registry} is {source.kind}, which ottla.spark.values.{source.kind.lower()} reads"
        )
    schema = Schema(source.text, str(source))
    if not source.references:
        return schema
    needed = {name: Schema(other.text, str(other)).json for name, other in source.collect_references().items()}
    return Schema(json.dumps(inline(schema.json, needed, "", set())), str(source))


class Reader:
    """Turns JSON values into nodes, and reports what is wrong with them."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._known: dict[str, SchemaNode] = {}

    def node(self, schema: Any, namespace: str, within: tuple[str, ...]) -> SchemaNode:
        if isinstance(schema, str):
            return self._by_name(schema, namespace, within)
        if isinstance(schema, list):
            return SchemaNode("union", branches=tuple(self.node(branch, namespace, within) for branch in schema))
        if not isinstance(schema, dict) or "type" not in schema:
            raise InvalidSchema(f"{self._what} is not an Avro schema: {str(schema)[:80]} has no type")
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.node(kind, namespace, within)
        if kind in NAMED:
            return self._read_named(schema, "record" if kind == "error" else kind, namespace, within)
        if kind in ("array", "map"):
            inner = schema.get("items" if kind == "array" else "values")
            return SchemaNode(kind, items=self.node(inner, namespace, within))
        if kind not in PRIMITIVE:
            return self._by_name(str(kind), namespace, within)
        return self._logical(schema, SchemaNode(kind))

    def _read_named(self, schema: dict[str, Any], kind: str, namespace: str, within: tuple[str, ...]) -> SchemaNode:
        name = full_name(str(schema.get("name", "")), schema.get("namespace") or namespace)
        space = name.rpartition(".")[0]
        if kind == "record":
            fields = tuple(
                (str(field["name"]), self.node(field.get("type"), space, (*within, name)), "default" in field)
                for field in schema.get("fields", ())
            )
            node = SchemaNode(kind, name, fields=fields)
        else:
            node = self._logical(schema, SchemaNode(kind, name))
        self._known[name] = node
        return node

    def _by_name(self, name: str, namespace: str, within: tuple[str, ...]) -> SchemaNode:
        if name in PRIMITIVE:
            return SchemaNode(name)
        for full in (full_name(name, namespace), name):
            if full in within:
                raise InvalidSchema(
                    f"{self._what} is recursive ({full} within itself), but a Spark type cannot be: "
                    f"read it with a schema without that field, or of limited depth"
                )
            if full in self._known:
                return self._known[full]
        raise InvalidSchema(f"{self._what} uses the type {name}, which neither it nor its references define")

    def _logical(self, schema: dict[str, Any], node: SchemaNode) -> SchemaNode:
        """An unknown or misplaced logical type is ignored, as Avro requires."""
        logical = schema.get("logicalType")
        if logical == "decimal" and node.kind in ("bytes", "fixed"):
            precision, scale = int(schema.get("precision", 0)), int(schema.get("scale", 0))
            if not 0 <= scale <= precision <= DECIMAL_PRECISION_MAX or not precision:
                raise InvalidSchema(
                    f"{self._what} has a decimal({precision}, {scale}), but Spark's go up to {DECIMAL_PRECISION_MAX} "
                    f"digits: read it as plain {node.kind}"
                )
            return SchemaNode(node.kind, node.name, "decimal", precision=precision, scale=scale)
        if (logical == "date" and node.kind == "int") or (logical in TIMESTAMPS_BY_NAME and node.kind == "long"):
            return SchemaNode(node.kind, node.name, str(logical))
        return node


def full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def strip(schema: Any) -> Any:
    if isinstance(schema, list):
        return [strip(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    keep = schema.get("logicalType") == "decimal"
    return {
        name: [{**field, "type": strip(field.get("type"))} for field in value]
        if name == "fields"
        else (strip(value) if name in ("type", "items", "values") else value)
        for name, value in schema.items()
        if name != "logicalType" or keep
    }


def mark(schema: Any, numbers: bool) -> Any:
    """A writer's plain schema with its named types marked, and its numbers too if they must be distinguished.

    The bytes show which branch of a union a value was read as, but a Python value may match several: int and long, or
    two records. Defaults are left out, since those of a writer are not used.
    """
    if isinstance(schema, list):
        return [mark(branch, numbers) for branch in schema]
    if isinstance(schema, str):
        return {"type": schema, "logicalType": MARK} if numbers and schema in NUMBERS else schema
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    kind = schema.get("type")
    if "fields" in schema:
        changed["fields"] = [
            {
                name: mark(value, numbers) if name == "type" else value
                for name, value in field.items()
                if name != "default"
            }
            for field in schema["fields"]
        ]
    for part in ("items", "values"):
        if part in schema:
            changed[part] = mark(schema[part], numbers)
    if not isinstance(kind, str):
        changed["type"] = mark(kind, numbers)
    elif kind in NAMED and schema.get("logicalType") == "decimal":
        changed["logicalType"] = f"{MARK}-decimal"
    elif kind in NAMED or (numbers and kind in NUMBERS):
        changed["logicalType"] = MARK
    return changed


def leaves_out(reader: Any, writer: Any) -> bool:
    """May values of this writer have fields that the reader's schema lacks? Both are parsed."""
    wanted = [
        (
            {short(name) for name in (record["name"], *record.get("aliases", ()))},
            {name for field in record["fields"] for name in (field["name"], *field.get("aliases", ()))},
        )
        for record in records(reader)
    ]
    for record in records(writer):
        seen = [fields for names, fields in wanted if short(record["name"]) in names]
        if not seen or any(field["name"] not in fields for field in record["fields"] for fields in seen):
            return True
    return False


def records(schema: Any) -> Iterator[dict[str, Any]]:
    """Every record that a parsed schema defines."""
    if isinstance(schema, dict) and "fields" in schema:
        yield schema
    for part in parts_of(schema):
        yield from records(part)


def is_recursive(schema: Any, within: tuple[str, ...]) -> bool:
    """Does a parsed schema contain a type within itself? Names are full there, and refer to earlier definitions."""
    if isinstance(schema, str):
        return schema in within
    if isinstance(schema, dict) and "fields" in schema:
        within = (*within, schema["name"])
    return any(is_recursive(part, within) for part in parts_of(schema))


def has_endless_arrays(schema: Any) -> bool:
    """Has a parsed schema an array whose items take no bytes? Then a short value can claim any number of them."""
    known = {record["name"]: record for record in records(schema)}

    def is_nothing(kind: Any) -> bool:
        kind = known.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, dict) and "fields" in kind:
            return all(is_nothing(field["type"]) for field in kind["fields"])
        return bool(kind == "null" or (isinstance(kind, dict) and (kind["type"] == "null" or kind.get("size") == 0)))

    def within(kind: Any) -> bool:
        here = isinstance(kind, dict) and kind["type"] == "array" and is_nothing(kind["items"])
        return here or any(map(within, parts_of(kind)))

    return within(schema)


def parts_of(schema: Any) -> list[Any]:
    if isinstance(schema, list):
        return schema
    if isinstance(schema, str):
        return []
    return [field["type"] for field in schema.get("fields", ())] + [
        schema[part] for part in ("items", "values") if part in schema
    ]


def short(name: str) -> str:
    return name.rpartition(".")[2]


def inline(schema: Any, needed: dict[str, Any], namespace: str, seen: set[str]) -> Any:
    """Replace references by what they refer to, each where it is first used; after that its name is enough."""
    if isinstance(schema, str):
        for full in (full_name(schema, namespace), schema):
            if full in needed and full not in seen:
                seen.add(full)
                return inline(needed[full], needed, "", seen)
        return schema
    if isinstance(schema, list):
        return [inline(branch, needed, namespace, seen) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    if schema.get("type") in NAMED:
        name = full_name(str(schema.get("name", "")), schema.get("namespace") or namespace)
        namespace = name.rpartition(".")[0]
        # A definition that moved elsewhere keeps its original namespace.
        changed |= {"name": name}
        changed.pop("namespace", None)
        changed["fields"] = [
            {**field, "type": inline(field.get("type"), needed, namespace, seen)} for field in schema.get("fields", ())
        ]
        if schema["type"] in ("enum", "fixed"):
            del changed["fields"]
        return changed
    for part in ("type", "items", "values"):
        if part in schema:
            changed[part] = inline(schema[part], needed, namespace, seen)
    return changed


# --- from Spark types ------------------------------------------------------------------------------------------------

FROM_SPARK: Final[dict[type[types.DataType], Any]] = {
    types.BooleanType: "boolean",
    types.ByteType: "int",
    types.ShortType: "int",
    types.IntegerType: "int",
    types.LongType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.BinaryType: "bytes",
    types.StringType: "string",
    types.DateType: {"type": "int", "logicalType": "date"},
    types.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    types.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def from_spark(kind: types.DataType, name: str, nullable: bool = False) -> Any:
    """The Avro schema, in JSON values, for a Spark type. Nested records are named by their path."""
    if isinstance(kind, types.StructType):
        fields = []
        for field in kind.fields:
            inner = from_spark(field.dataType, f"{name}_{field.name}", field.nullable)
            fields.append({"name": field.name, "type": inner} | ({"default": None} if field.nullable else {}))
        schema: Any = {"type": "record", "name": name, "fields": fields}
    elif isinstance(kind, types.ArrayType):
        schema = {"type": "array", "items": from_spark(kind.elementType, f"{name}_item", kind.containsNull)}
    elif isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType):
        schema = {"type": "map", "values": from_spark(kind.valueType, f"{name}_value", kind.valueContainsNull)}
    elif isinstance(kind, types.DecimalType):
        schema = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    elif type(kind) in FROM_SPARK:
        schema = FROM_SPARK[type(kind)]
    else:
        raise InvalidSchema(f"{name} is a {kind.simpleString()}, for which Avro has no type: cast it first")
    return ["null", schema] if nullable else schema
