"""One record as a line of JSON, the same for `produce --json` and `consume --json`, so that they can be piped.

    {"key": "k", "value": "v", "headers": [["name", "text"]], "partition": 0, "timestamp": 1763200000000}

Bytes that are not UTF-8 are base64 in `key_base64` or `value_base64`, or `{"base64": "..."}` in a header. A value that
is a JSON object or list is sent as its JSON text. A null value is a tombstone. `consume` also prints `topic` and
`offset`; `produce` ignores them.
"""

import json
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

KNOWN = {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp", "topic", "offset"}

Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp: int | None = None


def from_json(line: str) -> Record:
    """Raises ValueError with a message for the user."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("expected a JSON object with key, value, headers, partition, timestamp")
    if unknown := fields.keys() - KNOWN:
        raise ValueError(f"unknown field {', '.join(sorted(unknown))}")
    for name in ("partition", "timestamp"):
        if not isinstance(fields.get(name), int | None):
            raise ValueError(f"{name} must be a number")
    return Record(
        part(fields, "key"),
        part(fields, "value"),
        headers(fields.get("headers")),
        fields.get("partition"),
        fields.get("timestamp"),
    )


def part(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    return data(fields.get(name)) if encoded is None else b64decode(encoded, validate=True)


def headers(listed: Any) -> Headers:
    pairs = list(listed.items()) if isinstance(listed, dict) else listed or []
    if not isinstance(pairs, list) or not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise ValueError("headers must be an object, or a list of pairs of name and value")
    return [
        (str(name), b64decode(value["base64"], validate=True))
        if isinstance(value, dict) and value.keys() == {"base64"}
        else (str(name), data(value))
        for name, value in pairs
    ]


def data(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))).encode()


def to_json(topic: str, partition: int, offset: int, timestamp: int, record: Record) -> str:
    fields: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp}
    for name, content in (("key", record.key), ("value", record.value)):
        text = as_text(content)
        if content is not None and text is None:
            fields[f"{name}_base64"] = b64encode(content).decode()
        else:
            fields[name] = text
    fields["headers"] = [[name, header(value)] for name, value in record.headers]
    return json.dumps(fields, ensure_ascii=False)


def header(value: bytes | None) -> str | dict[str, str] | None:
    text = as_text(value)
    return {"base64": b64encode(value).decode()} if value is not None and text is None else text


def as_text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None
