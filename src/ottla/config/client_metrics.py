"""The options of a `client-metrics` resource: a subscription to metrics that clients push."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.option import ConfigError, Option, Table, integer, rows, strings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.option import Value

EVERYTHING: Final = "*"
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
PARAMETERS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class ClientMetricsConfig(Table):
    metrics: tuple[str, ...] = strings((), "Name prefixes of the metrics to push; * for all.")
    interval_ms: int = integer(300_000, "How often a client pushes.")
    match: tuple[str, ...] = strings(
        (), f"Which clients it applies to: name=pattern pairs, with names of {', '.join(PARAMETERS)}. Empty: all."
    )


OPTIONS: dict[str, Option] = rows(ClientMetricsConfig)


class UnknownError(ConfigError):
    """An unknown option, or a number out of bounds: Kafka answers these with INVALID_REQUEST."""


def client_metrics_config(pairs: Mapping[str, str]) -> ClientMetricsConfig:
    """The configuration. ConfigError names the unknown, malformed or invalid option."""
    values: dict[str, Value] = {row.attribute: row.default for row in OPTIONS.values()}
    for name, text in pairs.items():
        row = OPTIONS.get(name)
        if row is None:
            raise UnknownError(f"Unknown client metrics configuration: {name}")
        values[row.attribute] = row.parse(text)
    interval_ms = values["interval_ms"]
    assert isinstance(interval_ms, int)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        bounds = f"between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
        raise UnknownError(f"Invalid value {interval_ms} for interval.ms, interval must be {bounds}")
    config = ClientMetricsConfig(values)
    match_of(config.match)
    return config


def match_of(match: tuple[str, ...]) -> dict[str, str]:
    """Patterns by parameter."""
    patterns = {}
    for pair in match:
        name, equals, pattern = pair.partition("=")
        if not equals or name.strip() not in PARAMETERS or not pattern.strip():
            raise ConfigError(f"Illegal client matching pattern: {pair}")
        patterns[name.strip()] = pattern.strip()
    return patterns
