"""Bytes as people read them: what fits is shown, what does not says so, and nothing takes for ever."""

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fastavro
import pytest

from ottla.client.failure import Failed
from ottla.console.messages.values import SCHEMA_MAX, Decoder

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "who", "type": "string"}],
}
PROTO = 'syntax = "proto3"; message Order { int32 id = 1; string who = 2; } message Other { int32 x = 1; }'


def avro(value: object) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, SCHEMA, value)
    return made.getvalue()


def test_what_looks_like_text_is_text_and_the_rest_is_hex() -> None:
    show = Decoder()
    assert show(b"hello") == "hello"
    assert show("Ottla Kafková".encode()) == "Ottla Kafková"
    assert show(b"\x00\x01\xff") == "00 01 ff"
    assert show(None) == "null"
    assert show(b"\x1b[31mred") == "1b 5b 33 31 6d 72 65 64"


def test_json_is_set_out_and_what_is_none_says_so() -> None:
    assert Decoder("json")(b'{"a":1}') == '{\n  "a": 1\n}'
    assert Decoder("json")(b"{").startswith("(cannot be decoded")
    assert Decoder("hex")(b"ab") == "61 62"


@pytest.mark.parametrize("header", [b"", b"\0\0\0\0\7"])
def test_avro_with_a_schema_given(header: bytes) -> None:
    show = Decoder("avro", json.dumps(SCHEMA))
    assert json.loads(show(header + avro({"id": 7, "who": "Ada"}))) == {"id": 7, "who": "Ada"}
    assert "does not fit" in show(b"\xff\xff\xff")


def test_avro_without_schema_or_registry_says_what_to_do() -> None:
    assert "--registry" in Decoder("avro")(b"\0\0\0\0\1x")


def test_schemas_that_are_none_or_have_no_end_are_refused() -> None:
    for schema in ("{", '{"type": "array", "items": "null"}', '{"type": "nonsense"}', "x" * (SCHEMA_MAX + 1)):
        with pytest.raises(Failed):
            Decoder("avro", schema)


def test_protobuf_with_a_schema_given() -> None:
    data = b"\x08\x07\x12\x03Ada"
    assert json.loads(Decoder("protobuf", PROTO)(data)) == {"id": 7, "who": "Ada"}
    assert json.loads(Decoder("protobuf", PROTO, "Other")(b"\x08\x05")) == {"x": 5}
    assert "has no message Nobody" in Decoder("protobuf", PROTO, "Nobody")(data)
    assert "does not compile" in Decoder("protobuf", "message {")(data)


class Answers(BaseHTTPRequestHandler):
    """A registry that knows schema 7, and counts."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        known = self.path == "/schemas/ids/7"
        body = json.dumps({"schema": json.dumps(SCHEMA)} if known else {"message": "no such schema"}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def test_schemas_come_from_a_registry_and_each_is_asked_for_once() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        show = Decoder("avro", registry=f"http://127.0.0.1:{server.server_address[1]}")
        value = avro({"id": 7, "who": "Ada"})
        assert json.loads(show(b"\0\0\0\0\7" + value)) == {"id": 7, "who": "Ada"}
        assert "does not start with a schema id" in show(value)
        for _ in range(3):
            assert "no such schema" in show(b"\0\0\0\0\x08" + value)
        assert Answers.asked == 2
        server.shutdown()
