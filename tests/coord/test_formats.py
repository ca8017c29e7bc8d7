"""The records of the internal topics: compared with Kafka's definitions, in all their types and versions."""

from __future__ import annotations

from functools import cache
from typing import Any
from zipfile import ZipFile

import pytest
from judge import jar
from wire.definitions import Definition, parse
from wire.test_declarations import declared, defined

from ottla.coord import formats
from ottla.coord.formats import GROUPS, TRANSACTIONS, decode_record, encode_record
from ottla.coord.machine import Record
from ottla.wire.codec import DecodeError
from ottla.wire.schema import spec

OLD = {"LegacyOffsetCommitKey": "OffsetCommitKey", "LegacyOffsetCommitValue": "OffsetCommitValue"}
OTHERS = ("Share", "Streams")  # kinds of groups that are not kept here


@cache
def definitions() -> dict[str, Definition]:
    found = {}
    for name in ("kafka-group-coordinator", "kafka-transaction-coordinator"):
        with ZipFile(jar(name)) as archive:
            for path in archive.namelist():
                if path.endswith(".json"):
                    # Here alone Kafka writes a default of null without the quotes that the clients' files have.
                    definition = parse(archive.read(path).decode().replace('"default": null', '"default": "null"'))
                    if definition is not None:
                        for field in definition.fields:  # a tagged field may leave out what its tag says already
                            field.setdefault("versions", field.get("taggedVersions"))
                        found[definition.name] = definition
    return {name: definition for name, definition in found.items() if not name.startswith(OTHERS)}


def test_every_definition_is_declared_and_equal() -> None:
    assert {OLD.get(name, name) for name in definitions()} == {
        cls.__name__ for _, row in (*GROUPS.items(), *TRANSACTIONS.items()) for cls in row[:2]
    }
    for name, definition in definitions().items():
        cls = getattr(formats, OLD.get(name, name))
        low, high = definition.versions
        if name not in OLD:
            assert spec(cls).versions == definition.versions
            assert spec(cls).flexible == definition.flexible
        for version in range(low, high + 1):
            assert declared(cls, version) == defined(definition, version), f"{name} v{version}"


SAMPLES: list[Any] = [
    (
        formats.OffsetCommitKey(group="g", topic="t", partition=3),
        formats.OffsetCommitValue(offset=9, leader_epoch=2, metadata="m", commit_timestamp=7),
    ),
    (
        formats.GroupMetadataKey(group="g"),
        formats.GroupMetadataValue(
            protocol_type="consumer",
            generation=4,
            protocol="range",
            leader="m-1",
            current_state_timestamp=5,
            members=[
                formats.MemberMetadata(
                    member_id="m-1",
                    group_instance_id=None,
                    client_id="c",
                    client_host="/127.0.0.1",
                    rebalance_timeout=60000,
                    session_timeout=10000,
                    subscription=b"s",
                    assignment=b"a",
                )
            ],
        ),
    ),
    (formats.ConsumerGroupMetadataKey(group_id="g"), formats.ConsumerGroupMetadataValue(epoch=3, metadata_hash=11)),
]


@pytest.mark.parametrize(("key", "value"), SAMPLES)
def test_what_is_written_is_read(key: Any, value: Any) -> None:
    record = encode_record(key, value)
    assert decode_record(GROUPS, record.key, record.value) == (key, value)
    assert decode_record(GROUPS, record.key, None) == (key, None)
    assert encode_record(key, None) == Record(record.key, None)


def test_bytes_are_kafkas() -> None:
    """A commit as Apache Kafka 4.3.1 writes it."""
    record = encode_record(*SAMPLES[0])
    assert record.key.hex() == "000100016700017400000003"
    assert record.value is not None
    assert record.value.hex() == "000300000000000000090000000200016d0000000000000007"


def test_a_type_of_another_kind_of_group_is_passed_over() -> None:
    assert decode_record(GROUPS, b"\0\x0a\0\1g", b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", None), (b"\0", b""), (b"\0\2\0\5g", None), (b"\0\2\0\1g", b"\0"), (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x09")],
)
def test_malformed_records_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_record(GROUPS, key, value)


def test_a_member_that_kafka_wrote_with_a_tag_for_nothing_is_read() -> None:
    value = b"\0\0\x02i\x02r\x05test\x0b/127.0.0.1\x02\x06story\x01\0\0\x13\x88\0\x01\0\x01\0"
    found = formats.decode_record(formats.GROUPS, b"\0\x05\0\x01g\0\x01A", value)
    assert found is not None
    assert found[1].rebalance_timeout_ms == 5000
    assert found[1].classic_member_metadata is None
