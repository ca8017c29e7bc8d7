"""Collector of metrics that clients have pushed, with the number of clients and pushes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metrics import catalogue
from ottla.metrics.family import COUNTER, GAUGE, Family, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metrics.sources import Sources

MEANING = "Pushed by clients."


def clients(sources: Sources) -> Iterator[Sample | None]:
    """Yields None as a pause point."""
    telemetry = None if sources.parts is None else sources.parts.telemetry
    if telemetry is None:
        return
    yield Sample(catalogue.CLIENT_INSTANCES, (), len(telemetry))
    for error, count in telemetry.pushes.copy().items():
        yield Sample(catalogue.CLIENT_PUSHES, (error,), count)
    yield Sample(catalogue.LEFT_OUT, ("clients",), telemetry.left_out)
    for found in telemetry.series():
        if found is None:
            yield None
            continue
        (name, labels), value, grows = found
        if grows and not name.endswith("_total"):
            name = f"{name}_total"
        family = Family(name, COUNTER if grows else GAUGE, MEANING, tuple(key for key, _ in labels))
        yield Sample(family, tuple(text for _, text in labels), value)
