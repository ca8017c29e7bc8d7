"""JSON Schema as a Spark type, and back.

    object with properties               struct, its fields in the order of the schema
    object without                       map<string, the type of additionalProperties>
    array                                array
    string; with a format                string; date-time: timestamp, date: date
    string with contentEncoding base64   binary
    integer, number, boolean             bigint, double, boolean
    null beside another type             that type
    $ref, allOf                          what they refer to; all properties together
    anything else                        string: the original JSON text

The type defines what is read. Ranges, patterns and required fields are for writers: nothing is validated here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pyspark.sql import types

from ottla.spark.values.registry import JSON, InvalidSchema, Registered, schema_text

SIMPLE: Final[dict[str, types.DataType]] = {
    "integer": types.LongType(),
    "number": types.DoubleType(),
    "boolean": types.BooleanType(),
}
FORMATS: Final[dict[str, types.DataType]] = {"date-time": types.TimestampType(), "date": types.DateType()}
TEXT: Final = types.StringType()


def load(source: Any) -> tuple[types.DataType, str]:
    """The Spark type of a schema, and the schema's name for messages."""
    others: dict[str, Any] = {}
    if isinstance(source, types.DataType):
        return source, "the type"
    if isinstance(source, Registered):
        if source.kind != JSON:
            raise InvalidSchema(
                f"{source} of {source.registry} is {source.kind}, which ottla.spark.values.{source.kind.lower()} reads"
            )
        text, what = source.text, str(source)
        others = {name: parse(other.text, str(other)) for name, other in source.collect_references().items()}
    else:
        brief = isinstance(source, Path) or len(str(source)) < 80  # otherwise it is the schema itself
        text, what = schema_text(source)[0], f"the schema {source}" if brief else "the schema"
    return Reader(parse(text, what), others, what).whole(), what


def parse(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidSchema(f"{what} is not a JSON Schema, since it is not JSON: {error}") from None


class Reader:
    def __init__(self, root: Any, others: dict[str, Any], what: str) -> None:
        self._root = root
        self._others = others
        self._what = what

    def whole(self) -> types.DataType:
        return self._type(self._root, ())

    def _type(self, schema: Any, within: tuple[str, ...]) -> types.DataType:
        if not isinstance(schema, dict):
            return TEXT
        if "$ref" in schema:
            return self._resolve_reference(str(schema["$ref"]), within)
        if "allOf" in schema:
            return self._together(schema, within)
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                return self._one_of(schema[choice], within)
        kind = schema.get("type", "object" if "properties" in schema else None)
        kinds = set(kind) - {"null"} if isinstance(kind, list) else {kind}
        if kinds == {"integer", "number"}:
            return types.DoubleType()
        return self._single(kinds.pop(), schema, within) if len(kinds) == 1 else TEXT

    def _single(self, kind: Any, schema: dict[str, Any], within: tuple[str, ...]) -> types.DataType:
        if kind == "object" and schema.get("properties"):
            named = schema["properties"].items()
            return types.StructType([types.StructField(name, self._type(part, within)) for name, part in named])
        if kind == "object":
            return types.MapType(TEXT, self._type(schema.get("additionalProperties"), within))
        if kind == "array":
            return types.ArrayType(self._type(schema.get("items"), within))
        if kind == "string" and str(schema.get("contentEncoding", "")).lower() == "base64":
            return types.BinaryType()
        if kind == "string":
            return FORMATS.get(str(schema.get("format")), TEXT)
        return SIMPLE.get(str(kind), TEXT)

    def _one_of(self, choices: Any, within: tuple[str, ...]) -> types.DataType:
        real = [choice for choice in choices if not (isinstance(choice, dict) and choice.get("type") == "null")]
        return self._type(real[0], within) if len(real) == 1 else TEXT

    def _together(self, schema: dict[str, Any], within: tuple[str, ...]) -> types.DataType:
        rest = {name: value for name, value in schema.items() if name != "allOf"}
        parts = [*schema["allOf"], *([rest] if "properties" in rest or "type" in rest else [])]
        found = [self._type(part, within) for part in parts]
        structs = [kind for kind in found if isinstance(kind, types.StructType)]
        if not structs:
            return found[0] if len(found) == 1 else TEXT
        fields = {field.name: field for kind in structs for field in kind.fields}
        return types.StructType(list(fields.values()))

    def _resolve_reference(self, target: str, within: tuple[str, ...]) -> types.DataType:
        if target in within or target == "#":
            raise InvalidSchema(
                f"{self._what} is recursive ({target} within itself), but a Spark type cannot be: "
                f"read it with a schema without that field, or of limited depth"
            )
        document, _, pointer = target.partition("#")
        here = self._others.get(document) if document else self._root
        for step in filter(None, pointer.split("/")):
            here = here.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(here, dict) else None
        if here is None:
            raise InvalidSchema(f"{self._what} refers to {target}, which neither it nor its references define")
        if document:
            return Reader(self._others[document], self._others, self._what)._type(here, (*within, target))
        return self._type(here, (*within, target))


# --- from Spark types ------------------------------------------------------------------------------------------------

FROM_SPARK: Final[dict[type[types.DataType], dict[str, str]]] = {
    types.BooleanType: {"type": "boolean"},
    types.ByteType: {"type": "integer"},
    types.ShortType: {"type": "integer"},
    types.IntegerType: {"type": "integer"},
    types.LongType: {"type": "integer"},
    types.FloatType: {"type": "number"},
    types.DoubleType: {"type": "number"},
    types.DecimalType: {"type": "number"},
    types.StringType: {"type": "string"},
    types.BinaryType: {"type": "string", "contentEncoding": "base64"},
    types.DateType: {"type": "string", "format": "date"},
    types.TimestampType: {"type": "string", "format": "date-time"},
}


def from_spark(kind: types.DataType, name: str) -> dict[str, Any]:
    """The JSON Schema, in JSON values, of what to_json makes of a Spark type. to_json leaves out null fields."""
    if isinstance(kind, types.StructType):
        properties = {field.name: from_spark(field.dataType, f"{name}.{field.name}") for field in kind.fields}
        required = [field.name for field in kind.fields if not field.nullable]
        return {"type": "object", "properties": properties} | ({"required": required} if required else {})
    if isinstance(kind, types.ArrayType):
        return {"type": "array", "items": from_spark(kind.elementType, f"{name}[]")}
    if isinstance(kind, types.MapType):
        return {"type": "object", "additionalProperties": from_spark(kind.valueType, f"{name}{{}}")}
    if type(kind) not in FROM_SPARK:
        raise InvalidSchema(f"{name} is a {kind.simpleString()}, for which JSON has no type: cast it first")
    return dict(FROM_SPARK[type(kind)])
