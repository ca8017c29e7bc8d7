"""The compiled codecs: golden bytes, nulls, tags, regions, and what they make of bytes that are wrong."""

from __future__ import annotations

import struct
import traceback
import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.samples import all_messages, every_version, instance, versions

from ottla.wire.codec import DecodeError, decode, decoder, encode, encoder
from ottla.wire.decoding import ELEMENTS_MAX, uvarint
from ottla.wire.encoding import VARINT
from ottla.wire.messages.cluster import BrokerHeartbeatRequest
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from ottla.wire.messages.metadata import ApiVersionsResponse, Cursor, DescribeTopicPartitionsRequest, MetadataRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.schema import at, fields, i8, message, spec


class Part:
    """Stands for a slice of a file."""

    def __init__(self, size: int) -> None:
        self.size = size


# Written down by hand from the protocol's grammar, byte by byte.
PRODUCE_3 = (
    b"\xff\xff" b"\xff\xff" b"\x00\x00\x75\x30" b"\x00\x00\x00\x01" b"\x00\x01t"
    b"\x00\x00\x00\x01" b"\x00\x00\x00\x05" b"\x00\x00\x00\x03abc"
)  # fmt: skip
PRODUCE_9 = b"\x00\xff\xff\x00\x00\x75\x30\x02\x02t\x02\x00\x00\x00\x05\x04abc\0\0\0"


@pytest.mark.parametrize(("version", "golden"), [(3, PRODUCE_3), (9, PRODUCE_9), (2, PRODUCE_3[2:])])
def test_golden_produce(version: int, golden: bytes) -> None:
    partition = PartitionProduceData(index=5, records=memoryview(b"abc"))
    topic = TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])
    assert encode(request, version) == golden
    assert decode(ProduceRequest, version, golden) == request


def test_golden_tagged_fields() -> None:
    """Defaults are not sent."""
    request = FetchRequest(max_wait_ms=1, min_bytes=2, max_bytes=3, topics=[], cluster_id="c")
    request.replica_state = ReplicaState(replica_id=4, replica_epoch=5)
    head = struct.pack(">iiibii", 1, 2, 3, 0, 0, -1) + b"\x01\x01\x01"
    tags = b"\x02" + b"\x00\x02\x02c" + b"\x01\x0d" + struct.pack(">iqx", 4, 5)
    assert encode(request, 15) == head + tags
    assert decode(FetchRequest, 15, head + tags) == request
    assert encode(FetchRequest(max_wait_ms=1, min_bytes=2, max_bytes=3, topics=[]), 15) == head + b"\x00"
    assert (
        encode(FetchRequest(max_wait_ms=1, min_bytes=2, max_bytes=3, topics=[], replica_state=ReplicaState()), 15)
        == head + b"\x00"
    )


@message(None, versions=(0, 0), flexible=0)
class Backwards:
    """Tags declared in falling order, as no message of Kafka has them."""

    second: i8 = at(tag=1, default=0)
    first: i8 = at(tag=0, default=0)


def test_tags_are_written_in_rising_order() -> None:
    message = Backwards(first=7, second=8)
    assert encode(message, 0) == b"\x02\x00\x01\x07\x01\x01\x08"
    assert decode(Backwards, 0, b"\x02\x01\x01\x08\x00\x01\x07") == message, "read in any order"


def test_golden_null_struct() -> None:
    request = DescribeTopicPartitionsRequest(topics=[])
    assert encode(request, 0) == b"\x01" + struct.pack(">i", 2000) + b"\xff" + b"\x00"
    request.cursor = Cursor(topic_name="t", partition_index=1)
    assert encode(request, 0) == b"\x01" + struct.pack(">i", 2000) + b"\x01" + b"\x02t\0\0\0\x01\0" + b"\x00"


@pytest.mark.parametrize("seed", range(3))
def test_every_version_round_trips(seed: int) -> None:
    for cls, version in every_version():
        message = instance(cls, version, Random(seed))
        data = encode(message, version)
        for buffer in (data, memoryview(data), bytearray(data)):
            assert decode(cls, version, buffer) == message, (cls, version)
        shifted, end = decoder(cls, version)(b"???" + data + b"!", 3)
        assert (shifted, end) == (message, 3 + len(data)), (cls, version)
        assert encode(shifted, version) == data, (cls, version)


@given(st.data())
def test_any_values_round_trip(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(all_messages()))
    version = data.draw(st.sampled_from(versions(cls)))
    message = data.draw(built(cls, version))
    encoded = encode(message, version)
    assert decode(cls, version, encoded) == message


def built(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Any instance of the class, by way of Hypothesis, so that a failing one shrinks."""
    here = [field for field in fields(cls) if field.present(version)]

    def make(values: list[Any]) -> Any:
        made = instance(cls, version, Random(0))
        for field, value in zip(here, values, strict=True):
            setattr(made, field.name, value)
        return made

    return st.tuples(*[any_value(field, version) for field in here]).map(lambda values: make(list(values)))


def any_value(field: Any, version: int) -> st.SearchStrategy[Any]:
    bits = {"b": 8, "h": 16, "i": 32, "q": 64}
    one: st.SearchStrategy[Any]
    if field.struct is not None:
        one = built(field.struct, version)
    elif field.kind == "string":
        one = st.text(max_size=200)
    elif field.kind != "fixed":
        one = st.binary(max_size=200)
    elif field.format == "?":
        one = st.booleans()
    elif field.format == "16s":
        one = st.binary(min_size=16, max_size=16)
    elif field.format == "d":
        one = st.floats(allow_nan=False)
    elif field.format in bits:
        one = st.integers(-(1 << bits[field.format] - 1), (1 << bits[field.format] - 1) - 1)
    else:
        one = st.integers(0, (1 << {"H": 16, "I": 32}[field.format]) - 1)
    if field.array:
        one = st.lists(one, max_size=3)
    return st.none() | one if field.may_be_null(version) else one


@given(st.integers(0, 0xFFFFFFFF))
def test_varints_round_trip(number: int) -> None:
    data = VARINT[number]
    assert uvarint(b"?" + data, 1) == (number, 1 + len(data))


@pytest.mark.parametrize("data", [b"\x80" * 5 + b"\x00", b"\xff\xff\xff\xff\x10"])
def test_varints_that_are_too_long(data: bytes) -> None:
    with pytest.raises(DecodeError, match="varint"):
        uvarint(data, 0)


# --- records ----------------------------------------------------------------------------------------------------------


def response(records: Any) -> FetchResponse:
    partition = PartitionData(partition_index=1, error_code=0, high_watermark=9, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


@pytest.mark.parametrize("version", range(19))
def test_a_region_is_counted_and_passed_on(version: int) -> None:
    region = Part(70_000)
    parts = encoder(FetchResponse, version)(response(region))
    assert parts[1] is region
    joined = b"".join(bytes(part.size) if part is region else part for part in parts)  # type: ignore[misc]
    assert joined == encode(response(bytes(70_000)), version)


def test_regions_and_bytes_may_be_mixed() -> None:
    first, second = Part(3), Part(4)
    message = response(first)
    message.responses[0].partitions += (
        response(b"xyz").responses[0].partitions + response(second).responses[0].partitions
    )
    parts = encoder(FetchResponse, 4)(message)
    assert parts[1] is first
    assert parts[3] is second
    assert len(parts) == 4
    joined = b"".join(part if isinstance(part, bytes) else bytes(part.size) for part in parts)
    decoded = decode(FetchResponse, 4, joined).responses[0].partitions
    assert [bytes(one.records or b"") for one in decoded] == [bytes(3), b"xyz", bytes(4)]  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [3, 9])
def test_record_bytes_are_a_view_of_the_frame(version: int) -> None:
    frame = bytearray({3: PRODUCE_3, 9: PRODUCE_9}[version])
    records = decode(ProduceRequest, version, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"abc")] = ord("z")
    assert bytes(records) == b"zbc"


def test_null_records() -> None:
    partition = PartitionProduceData(index=0, records=None)
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    for version in versions(ProduceRequest):
        assert decode(ProduceRequest, version, encode(request, version)).topic_data[0].partition_data[0].records is None


# --- wrong bytes ------------------------------------------------------------------------------------------------------


def test_every_truncation_is_refused() -> None:
    """A message cut short anywhere is an error, never a shorter message; in every version of every message."""
    for cls, version in every_version():
        data = encode(instance(cls, version, Random(version)), version)
        cuts = range(len(data)) if len(data) < 200 else sorted(Random(0).sample(range(len(data)), 200))
        for cut in cuts:
            with pytest.raises(DecodeError):
                decoder(cls, version)(data[:cut], 0)


def test_null_where_null_is_not_allowed() -> None:
    with pytest.raises(DecodeError, match="topics must not be null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(DecodeError, match="topic_data must not be null"):
        decode(ProduceRequest, 9, b"\x00\xff\xff\0\0\0\0\x00\x00")


def test_text_that_is_not_utf_8() -> None:
    with pytest.raises(DecodeError, match="utf-8"):
        decode(ProduceRequest, 9, PRODUCE_9.replace(b"\x02t", b"\x02\xff"))


def test_bytes_left_over() -> None:
    with pytest.raises(DecodeError, match="1 bytes are left"):
        decode(ProduceRequest, 9, PRODUCE_9 + b"\0")


def test_unknown_tags_are_skipped() -> None:
    at = len(PRODUCE_9) - 3
    tagged = PRODUCE_9[:at] + b"\x02\x05\x03xyz\x90\x01\x00" + b"\x00" + b"\x01\x07\x00"
    assert decode(ProduceRequest, 9, tagged) == decode(ProduceRequest, 9, PRODUCE_9)
    with pytest.raises(DecodeError, match="past the end"):
        decode(ProduceRequest, 9, PRODUCE_9[:-1] + b"\x01\x05\x7fxyz")


def test_a_known_tag_must_fill_its_size() -> None:
    message = response(None)
    message.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=1, end_offset=2)
    data = encode(message, 12)
    whole = b"\x01\x00\x0d" + struct.pack(">iqx", 1, 2)
    assert whole in data
    with pytest.raises(DecodeError, match="does not fill its size"):
        decode(FetchResponse, 12, data.replace(whole, b"\x01\x00\x0e" + struct.pack(">iqxx", 1, 2)))


HOSTILE = [
    (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
    (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f"),
    (ProduceRequest, 3, b"\xff\xff\0\x01\0\0\0\0" + b"\x7f\xff\xff\xff"),
    (ProduceRequest, 3, b"\xff\xff\0\x01\0\0\0\0" + b"\0\0\0\x01\0\x01t" + b"\0\0\0\x01\0\0\0\0" + b"\x7f\xff\xff\xff"),
    (ProduceRequest, 9, b"\xff\xff\xff\xff\x0f"),
    (FetchRequest, 7, bytes(25) + b"\0\0\0\0" + b"\0\0\0\x01\0\x01t" + b"\x7f\xff\xff\xff"),
    (BrokerHeartbeatRequest, 1, bytes(22) + b"\x01\x00\x05\xff\xff\xff\xff\x0f"),
    (ApiVersionsResponse, 3, b"\0\0\x01\0\0\0\0" + b"\xff\xff\xff\xff\x0f"),
    (ApiVersionsResponse, 3, b"\0\0\x01\0\0\0\0" + b"\x01\x00\xff\xff\xff\xff\x0f\xff\xff\xff\xff\x0f"),
]


@pytest.mark.parametrize(("cls", "version", "data"), HOSTILE)
def test_a_declared_size_allocates_nothing(cls: type[Any], version: int, data: bytes) -> None:
    """Two thousand million elements in a few bytes: refused, and the memory it took is that of the error."""
    decode_it = decoder(cls, version)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode_it(data, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000


def test_the_number_of_elements_has_a_bound() -> None:
    """Empty names cost two bytes each on the wire and far more in memory."""

    def request(names: int) -> bytes:
        return VARINT[names + 1] + b"\x01\x00" * names + b"\0\0\0\0"

    assert len(decode(MetadataRequest, 9, request(1000)).topics or []) == 1000
    with pytest.raises(DecodeError, match=f"{ELEMENTS_MAX + 1} elements"):
        decode(MetadataRequest, 9, request(ELEMENTS_MAX + 1))


def test_the_bound_is_on_all_arrays_together() -> None:
    """A hundred topics with a hundredth of the bound each are one too many by themselves."""
    each = ELEMENTS_MAX // 100
    topic = b"\x02t" + VARINT[each + 1] + b"\0\0\0\0\x00\x00" * each + b"\x00"
    with pytest.raises(DecodeError, match="partition_data declares"):
        decode(ProduceRequest, 9, b"\x00\xff\xff\0\0\0\0" + VARINT[101] + topic * 100 + b"\x00")


# --- the codec itself -------------------------------------------------------------------------------------------------


def test_a_version_that_does_not_exist() -> None:
    for cls in (ProduceRequest, FetchRequest):
        low, high = spec(cls).versions
        for version in (low - 1, high + 1):
            with pytest.raises(ValueError, match="has versions"):
                decoder(cls, version)
            with pytest.raises(ValueError, match="has versions"):
                encoder(cls, version)


def test_compiled_once_and_readable() -> None:
    assert decoder(ProduceRequest, 9) is decoder(ProduceRequest, 9)
    assert encoder(ProduceRequest, 9) is encoder(ProduceRequest, 9)
    with pytest.raises(AttributeError) as failed:
        encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=[None]), 9)  # type: ignore[list-item]
    shown = "".join(traceback.format_exception(failed.value))
    assert "<encode ProduceRequest v9>" in shown
    assert ".name.encode()" in shown, "the traceback shows the line of the compiled text"


def test_what_does_not_fit_is_a_fault_of_the_caller() -> None:
    with pytest.raises(struct.error):
        encode(ProduceRequest(acks=1 << 20, timeout_ms=1, topic_data=[]), 9)
    with pytest.raises(TypeError):
        encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=None), 9)  # type: ignore[arg-type]
