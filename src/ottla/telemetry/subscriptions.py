"""Subscriptions: which clients push which metrics, and how often. Each is a `client-metrics` resource.

    metrics        name prefixes; * for everything
    interval.ms    how often to push
    match          name=pattern pairs; a client must match all of them; without pairs, every client matches

A client that matches several subscriptions pushes the metrics of all of them, at the shortest interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.client_metrics import EVERYTHING, client_metrics_config, match_of
from ottla.config.option import ConfigError
from ottla.coord.patterns import PatternError, compile_pattern
from ottla.records.native import crc32c

if TYPE_CHECKING:
    from collections.abc import Mapping

    Configs = Mapping[str, Mapping[str, str]]  # by the name of the resource

INTERVAL_MS: Final = 300_000


class Client(NamedTuple):
    """A client that a subscription may match. The field names are the parameters of `match`."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(NamedTuple):
    """What one client should push, combined from all subscriptions that match it."""

    id: int
    metrics: tuple[str, ...]  # empty: nothing; an empty prefix: everything
    interval_ms: int


def choose_metrics(configs: Configs, client: Client) -> Subscription:
    metrics: dict[str, None] = {}
    intervals = []
    for pairs in configs.values():
        try:
            config = client_metrics_config(pairs)
            if not matches(config.match, client):
                continue
        except (ConfigError, PatternError):  # written by another broker: it matches no client
            continue
        metrics |= dict.fromkeys(config.metrics)
        intervals.append(config.interval_ms)
    names = ("",) if EVERYTHING in metrics else tuple(sorted(metrics))
    interval_ms = min(intervals, default=INTERVAL_MS)
    told = f"{names}{interval_ms}{client.client_instance_id}".encode()
    return Subscription(int.from_bytes(crc32c(told).to_bytes(4), signed=True), names, interval_ms)


def matches(match: tuple[str, ...], client: Client) -> bool:
    return all(compile_pattern(pattern).matches(getattr(client, name)) for name, pattern in match_of(match).items())
