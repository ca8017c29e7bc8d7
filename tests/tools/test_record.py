import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tools.record import Record, from_json, to_json

content = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
records = st.builds(
    Record,
    key=content,
    value=content,
    headers=st.lists(st.tuples(st.text(max_size=5), content), max_size=3),
)


@given(records, st.integers(0, 9), st.integers(0, 2**63 - 1))
def test_what_consume_prints_produce_can_send(record: Record, partition: int, timestamp: int) -> None:
    line = to_json("topic", partition, 3, timestamp, record)
    assert "\n" not in line
    assert from_json(line) == record._replace(partition=partition, timestamp=timestamp)


def test_bytes_that_are_no_text_are_base64() -> None:
    fields = json.loads(to_json("t", 0, 0, 0, Record(b"\xff", b"plain", [("h", b"\xfe"), ("n", None)])))
    assert fields["key_base64"] == "/w=="
    assert "key" not in fields
    assert fields["value"] == "plain"
    assert fields["headers"] == [["h", {"base64": "/g=="}], ["n", None]]


def test_a_document_as_value_is_sent_as_its_text() -> None:
    assert from_json('{"value": {"a": [1, 2]}}').value == b'{"a":[1,2]}'
    assert from_json('{"value": 7}').value == b"7"


def test_a_document_that_looks_like_bytes_is_still_a_document() -> None:
    assert from_json('{"value": {"base64": "/w=="}}').value == b'{"base64":"/w=="}'


def test_headers_may_be_an_object() -> None:
    assert from_json('{"value": "v", "headers": {"a": "1", "b": null}}').headers == [("a", b"1"), ("b", None)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "expected a JSON object"),
        ('{"valeu": "v"}', "unknown field valeu"),
        ('{"partition": "0"}', "partition must be a number"),
        ('{"timestamp": 1.5}', "timestamp must be a number"),
        ('{"value_base64": "*"}', "base64"),
        ('{"headers": 7}', "headers"),
        ('{"headers": [["name"]]}', "headers"),
        ("nonsense", "Expecting value"),
    ],
)
def test_a_line_that_is_no_record_is_refused(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_json(line)
