"""What clients push is read as Google's own library writes it, and nothing malformed does harm."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from ottla.telemetry.otlp import PAUSE_EVERY, DataPoint, read
from ottla.telemetry.protobuf import MalformedError

PACKAGE = "otlp"
KINDS = {"double": 1, "int64": 3, "fixed64": 6, "bool": 8, "string": 9, "message": 11, "int32": 5, "sfixed64": 16}
# The part of opentelemetry/proto/metrics/v1/metrics.proto that clients use: (name, number, kind or message, repeated)
MESSAGES: dict[str, list[tuple[str, int, str, bool]]] = {
    "AnyValue": [
        ("string_value", 1, "string", False),
        ("bool_value", 2, "bool", False),
        ("int_value", 3, "int64", False),
        ("double_value", 4, "double", False),
    ],
    "KeyValue": [("key", 1, "string", False), ("value", 2, "AnyValue", False)],
    "Resource": [("attributes", 1, "KeyValue", True)],
    "NumberDataPoint": [
        ("start_time_unix_nano", 2, "fixed64", False),
        ("time_unix_nano", 3, "fixed64", False),
        ("as_double", 4, "double", False),
        ("as_int", 6, "sfixed64", False),
        ("attributes", 7, "KeyValue", True),
    ],
    "HistogramDataPoint": [
        ("count", 4, "fixed64", False),
        ("sum", 5, "double", False),
        ("attributes", 9, "KeyValue", True),
    ],
    "Gauge": [("data_points", 1, "NumberDataPoint", True)],
    "Sum": [
        ("data_points", 1, "NumberDataPoint", True),
        ("aggregation_temporality", 2, "int32", False),
        ("is_monotonic", 3, "bool", False),
    ],
    "Histogram": [("data_points", 1, "HistogramDataPoint", True), ("aggregation_temporality", 2, "int32", False)],
    "Metric": [
        ("name", 1, "string", False),
        ("unit", 3, "string", False),
        ("gauge", 5, "Gauge", False),
        ("sum", 7, "Sum", False),
        ("histogram", 9, "Histogram", False),
    ],
    "ScopeMetrics": [("metrics", 2, "Metric", True)],
    "ResourceMetrics": [("resource", 1, "Resource", False), ("scope_metrics", 2, "ScopeMetrics", True)],
    "MetricsData": [("resource_metrics", 1, "ResourceMetrics", True)],
}


def made() -> Any:
    """Google's class of MetricsData."""
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package=PACKAGE, syntax="proto2")
    for name, rows in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in rows:
            one = message.field.add(name=field, number=number, label=3 if repeated else 1)
            one.type = KINDS.get(kind, KINDS["message"])
            if kind in MESSAGES:
                one.type_name = f".{PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.MetricsData"))


MetricsData = made()


def pushed() -> Any:
    data = MetricsData()
    resource = data.resource_metrics.add()
    rack = resource.resource.attributes.add(key="client_rack")
    rack.value.string_value = "r1"
    scope = resource.scope_metrics.add()
    gauge = scope.metrics.add(name="a.gauge").gauge.data_points.add(as_double=-1.5)
    topic = gauge.attributes.add(key="topic")
    topic.value.string_value = "orders"
    total = scope.metrics.add(name="a.total").sum
    total.aggregation_temporality, total.is_monotonic = 1, True
    total.data_points.add(as_int=-7, time_unix_nano=5)
    number = total.data_points.add(as_int=1 << 40).attributes.add(key="n")
    number.value.int_value = 12
    histogram = scope.metrics.add(name="a.histogram").histogram
    histogram.data_points.add(count=3, sum=4.5)
    return data


def test_points_are_what_was_written() -> None:
    rack = {"client_rack": "r1"}
    assert [point for point in read(pushed().SerializeToString()) if point is not None] == [
        DataPoint("a.gauge", {**rack, "topic": "orders"}, -1.5, False, False),
        DataPoint("a.total", rack, -7.0, True, True),
        DataPoint("a.total", {**rack, "n": "12"}, float(1 << 40), True, True),
        DataPoint("a.histogram.count", rack, 3.0, True, False),
        DataPoint("a.histogram.sum", rack, 4.5, True, False),
    ]


@given(st.data())
def test_what_is_cut_or_changed_is_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(pushed().SerializeToString())
    cut = data.draw(st.integers(0, len(whole)))
    at, byte = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    whole[at] = byte
    read_or_refuse(bytes(whole[:cut]))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    read_or_refuse(data)


def read_or_refuse(data: bytes) -> None:
    with contextlib.suppress(MalformedError):
        list(read(data))


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x7f", b"\xff" * 11, b"\x0b", b"\x0a\x02\x08\x80", b"\x08\x01\x0a"])
def test_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        list(read(data + b"\x0a"))


def test_a_payload_of_nothing_pauses_often() -> None:
    """The loop is given back while fields are passed over that say nothing."""
    steps = list(read(b"\x10\x01" * 50_000))
    assert steps.count(None) == 50_000 // PAUSE_EVERY
