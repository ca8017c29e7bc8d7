"""Collectors of running counts: traffic, requests, connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.metrics import catalogue
from ottla.metrics.family import Distribution, Sample
from ottla.net.counts import BOUNDS, Counts
from ottla.replica.traffic import Traffic
from ottla.wire.apis import BY_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metrics.family import Family
    from ottla.metrics.sources import Sources

TRAFFIC = {
    "messages_in": (catalogue.MESSAGES_IN, catalogue.TOPIC_MESSAGES_IN),
    "bytes_in": (catalogue.BYTES_IN, catalogue.TOPIC_BYTES_IN),
    "bytes_out": (catalogue.BYTES_OUT, catalogue.TOPIC_BYTES_OUT),
    "replicated_in": (catalogue.REPLICATED_IN, catalogue.TOPIC_REPLICATED_IN),
    "replicated_out": (catalogue.REPLICATED_OUT, catalogue.TOPIC_REPLICATED_OUT),
}


def traffic(sources: Sources) -> Iterator[Sample]:
    if sources.parts is None:
        return
    replicas, total = sources.parts.replicas, Traffic()
    total.add(replicas.past)
    topics = replicas.topics()
    shown = sources.config.ottla_metrics_topics_max
    for at, (name, partitions) in enumerate(topics):
        hosted = list(partitions.values())
        if not hosted:  # removed meanwhile
            continue
        one = hosted[0].traffic
        total.add(one)
        if at < shown:
            for attribute, (_, family) in TRAFFIC.items():
                yield Sample(family, (name,), getattr(one, attribute))
            yield Sample(catalogue.TOPIC_LOG_BYTES, (name,), sum(partition.log.size for partition in hosted))
    for attribute, (family, _) in TRAFFIC.items():
        yield Sample(family, (), getattr(total, attribute))
    yield Sample(catalogue.LEFT_OUT, ("topics",), max(0, len(topics) - shown))


def requests(sources: Sources) -> Iterator[Sample]:
    dispatch = sources.dispatch
    if dispatch is None:
        return
    totals: dict[int, Counts] = {}
    for one in dispatch.list_counts():
        name = BY_KEY[one.key].name
        yield Sample(catalogue.REQUESTS, (name, str(one.version)), one.requests)
        total = totals.setdefault(one.key, Counts(one.key, -1))
        add(total, one)
    for key, total in totals.items():
        name = BY_KEY[key].name
        phases = {"queue": total.queue_s, "local": total.local_s, "remote": total.remote_s, "send": total.send_s}
        for phase, taken_s in phases.items():
            yield Sample(catalogue.PHASE_SECONDS, (name, phase), round(taken_s, 6))
        yield Sample(
            catalogue.REQUEST_SECONDS, (name,), Distribution(BOUNDS, total.buckets, round(sum(phases.values()), 6))
        )
    for (key, code), count in dispatch.errors.copy().items():
        yield Sample(catalogue.REQUEST_ERRORS, (BY_KEY[key].name, error_name(code)), count)


def add(total: Counts, one: Counts) -> None:
    """Add up the versions of an API."""
    total.queue_s += one.queue_s
    total.local_s += one.local_s
    total.remote_s += one.remote_s
    total.send_s += one.send_s
    total.buckets = [before + more for before, more in zip(total.buckets, one.buckets, strict=True)]


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def quotas(sources: Sources) -> Iterator[Sample]:
    if sources.parts is None or sources.parts.quotas is None:
        return
    for key, figures in sources.parts.quotas.figures.items():
        yield Sample(catalogue.THROTTLED, (key,), figures.count)
        yield Sample(catalogue.THROTTLE_SECONDS, (key,), figures.throttle_ms / 1000)
    yield Sample(catalogue.QUOTA_SENSORS, (), len(sources.parts.quotas))


def connections(sources: Sources) -> Iterator[Sample]:
    of: tuple[tuple[Family, str], ...] = ((catalogue.ACCEPTED, "accepted"), (catalogue.REFUSED, "refused"))
    for listener in sources.listeners:
        yield Sample(catalogue.CONNECTIONS, (listener.name,), len(listener.connections))
        for family, attribute in of:
            yield Sample(family, (listener.name,), getattr(listener, attribute))
    if sources.parts is not None:
        yield Sample(catalogue.WAITING_FETCHES, (), len(sources.parts.replicas.waits))
        yield Sample(catalogue.FETCH_SESSIONS, (), len(sources.parts.sessions))
