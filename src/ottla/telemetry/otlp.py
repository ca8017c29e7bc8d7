"""OpenTelemetry metrics as clients send them: MetricsData, opentelemetry/proto/metrics/v1/metrics.proto.

    MetricsData 1 → ResourceMetrics    1 → Resource: 1 attributes      2 → ScopeMetrics      2 → Metric
    Metric      1 name    5 gauge    7 sum    9 histogram; each: 1 data points
    Sum         2 temporality (1: since the last push)    3 whether it is monotonic
    point       7 attributes (a histogram's: 9)    4 double    6 integer    (a histogram's: 4 count, 5 sum)

Only count and sum of a histogram are read. Unknown fields are skipped. `read` is a generator that yields points, and
None as a pause point: a payload may have a million empty fields.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.telemetry.protobuf import MalformedError, fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    Attributes = dict[str, str]

GAUGE, SUM, HISTOGRAM = 5, 7, 9
DELTA: Final = 1
PAUSE_EVERY: Final = 100  # fields
TEXT_SIZE_MAX: Final = 256
_DOUBLE, _INTEGER, _COUNT = Struct("<d"), Struct("<q"), Struct("<Q")


class DataPoint(NamedTuple):
    name: str
    attributes: Attributes  # of the resource, and of the point
    value: float
    grows: bool  # monotonic, a counter: decreases only when its client restarts
    delta: bool  # the change since the last push


def read(data: bytes) -> Iterator[DataPoint | None]:
    """The points of a payload. MalformedError if it is malformed."""
    for number, found in _read_fields(memoryview(data)):
        if found is None:
            yield None
        elif number == 1:
            yield from _resource(message(found))


def _resource(data: memoryview) -> Iterator[DataPoint | None]:
    common: Attributes = {}
    scopes = []
    for number, found in _read_fields(data):
        if found is None:
            yield None
        elif number == 1:
            for inner, attribute in fields(message(found)):
                if inner == 1:
                    _note(message(attribute), common)
        elif number == 2:
            scopes.append(message(found))
    for scope in scopes:
        for number, found in _read_fields(scope):
            if found is None:
                yield None
            elif number == 2:
                yield from _metric(message(found), common)


def _metric(data: memoryview, common: Attributes) -> Iterator[DataPoint | None]:
    name, bodies = "", []
    for number, found in _read_fields(data):
        if found is None:
            yield None
        elif number == 1:
            name = text(message(found))
        elif number in (GAUGE, SUM, HISTOGRAM):
            bodies.append((number, message(found)))
    for kind, body in bodies:
        points, delta, grows = [], False, kind == HISTOGRAM
        for number, found in _read_fields(body):
            if found is None:
                yield None
            elif number == 1:
                points.append(message(found))
            elif number == 2 and kind != GAUGE:
                delta = found == DELTA
            elif number == 3 and kind == SUM:
                grows = bool(found)
        for point in points:
            yield from _points(name, kind, point, common, grows=grows, delta=delta)


def _points(
    name: str, kind: int, data: memoryview, common: Attributes, *, grows: bool, delta: bool
) -> Iterator[DataPoint | None]:
    attributes, values = dict(common), dict[str, float]()
    for number, found in _read_fields(data):
        if found is None:
            yield None
        elif number == (9 if kind == HISTOGRAM else 7):
            _note(message(found), attributes)
        elif kind == HISTOGRAM and number == 4:
            values[".count"] = float(_COUNT.unpack(eight(found))[0])
        elif kind == HISTOGRAM and number == 5:
            values[".sum"] = _DOUBLE.unpack(eight(found))[0]
        elif kind != HISTOGRAM and number == 4:
            values[""] = _DOUBLE.unpack(eight(found))[0]
        elif kind != HISTOGRAM and number == 6:
            values[""] = float(_INTEGER.unpack(eight(found))[0])
    for suffix, value in values.items():
        yield DataPoint(name + suffix, attributes, value, grows, delta)


def _note(data: memoryview, attributes: Attributes) -> None:
    """KeyValue: 1 key, 2 AnyValue: 1 text, 2 boolean, 3 integer, 4 double."""
    key, value = "", ""
    for number, found in fields(data):
        if number == 1:
            key = text(message(found))
        elif number == 2:
            for kind, content in fields(message(found)):
                if kind == 1:
                    value = text(message(content))
                elif kind in (2, 3):
                    value = str(content if isinstance(content, int) else 0)
                elif kind == 4:
                    value = repr(_DOUBLE.unpack(eight(content))[0])
    attributes[key] = value


def _read_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview | None]]:
    """The fields of a message, with pause points."""
    for count, (number, value) in enumerate(fields(data), 1):
        yield number, value
        if count % PAUSE_EVERY == 0:
            yield 0, None


def message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise MalformedError("expected a message, got a number")
    return value


def eight(value: int | memoryview) -> memoryview:
    if isinstance(value, int) or len(value) != 8:
        raise MalformedError("expected eight bytes")
    return value


def text(data: memoryview) -> str:
    return bytes(data[:TEXT_SIZE_MAX]).decode(errors="replace")
