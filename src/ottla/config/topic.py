"""A topic's options. Almost every one takes its type, bounds and default from a broker option.

`topic_config(broker, overrides)` applies the rule: the topic's value if set, else the broker's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.config.broker import OPTIONS as BROKER_OPTIONS
from ottla.config.broker import BrokerConfig, load
from ottla.config.option import (
    LONG_MAX,
    ConfigError,
    Option,
    Table,
    boolean,
    invalid,
    long,
    rows,
    strings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

THROTTLED = r"\d+:\d+"
TIERED = "For tiered storage."
NOT_TIERED = "Ottla has no tiered storage."
_STOCK = load({})


class Inherited(Option):
    """A row whose type, default and bounds are those of a broker option, unless it narrows them."""

    __slots__ = ("source",)

    def __init__(self, source: str, **narrowed: Any) -> None:
        row = BROKER_OPTIONS[source]
        facts = {
            "least": row.least,
            "most": row.most,
            "also": row.also,
            "choices": row.choices,
            "differs": row.differs,
            "idle": row.idle,
        }
        # The resolved value: a broker option without its own default has one at the end of its chain.
        super().__init__(row.kind, getattr(_STOCK, row.attribute), row.doc, **{**facts, **narrowed})
        self.source = row


def inherits(source: str, **narrowed: Any) -> Any:
    return Inherited(source, **narrowed)


class TopicConfig(Table):
    overrides: Mapping[str, str]
    compacts: bool
    deletes: bool
    magic: int  # format that records are stored in

    # Segments
    segment_bytes: int = inherits("log.segment.bytes")
    segment_ms: int = inherits("log.roll.ms", least=1)
    segment_jitter_ms: int = inherits("log.roll.jitter.ms", least=0)
    segment_index_bytes: int = inherits("log.index.size.max.bytes")
    index_interval_bytes: int = inherits("log.index.interval.bytes")
    preallocate: bool = inherits("log.preallocate")

    # Retention and compaction
    cleanup_policy: tuple[str, ...] = inherits("log.cleanup.policy")
    retention_ms: int = inherits("log.retention.ms", least=-1)
    retention_bytes: int = inherits("log.retention.bytes")
    file_delete_delay_ms: int = inherits("log.segment.delete.delay.ms")
    min_cleanable_dirty_ratio: float = inherits("log.cleaner.min.cleanable.ratio")
    min_compaction_lag_ms: int = inherits("log.cleaner.min.compaction.lag.ms")
    max_compaction_lag_ms: int = inherits("log.cleaner.max.compaction.lag.ms")
    delete_retention_ms: int = inherits("log.cleaner.delete.retention.ms")

    # Flushing
    flush_messages: int = inherits("log.flush.interval.messages")
    flush_ms: int = inherits("log.flush.interval.ms", least=0)

    # Records
    max_message_bytes: int = inherits("message.max.bytes")
    compression_type: str = inherits("compression.type")
    compression_gzip_level: int = inherits("compression.gzip.level")
    compression_lz4_level: int = inherits("compression.lz4.level")
    compression_zstd_level: int = inherits("compression.zstd.level")
    message_timestamp_type: str = inherits("log.message.timestamp.type")
    message_timestamp_before_max_ms: int = inherits("log.message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = inherits("log.message.timestamp.after.max.ms")
    message_timestamp_difference_max_ms: int = inherits("log.message.timestamp.difference.max.ms")
    message_format_version: str = inherits("log.message.format.version")
    message_downconversion_enable: bool = inherits("log.message.downconversion.enable")

    # Replicas
    min_insync_replicas: int = inherits("min.insync.replicas")
    unclean_leader_election_enable: bool = inherits("unclean.leader.election.enable")
    leader_replication_throttled_replicas: tuple[str, ...] = strings(
        (),
        "Replicas that are throttled on the leader's side, as partition:broker pairs or *.",
        pattern=THROTTLED,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = strings(
        (),
        "Replicas that are throttled on the follower's side, as partition:broker pairs or *.",
        pattern=THROTTLED,
    )

    # Kept because Kafka's tools set them
    remote_storage_enable: bool = boolean(False, "For tiered storage, which Ottla does not have: true is refused.")
    remote_log_copy_disable: bool = boolean(False, TIERED, idle=NOT_TIERED)
    remote_log_delete_on_disable: bool = boolean(False, TIERED, idle=NOT_TIERED)
    local_retention_ms: int = long(-2, TIERED, least=-2, idle=NOT_TIERED)
    local_retention_bytes: int = long(-2, TIERED, least=-2, idle=NOT_TIERED)


OPTIONS: dict[str, Option] = rows(TopicConfig)
# Topic option → the broker option behind it.
INHERITED: dict[str, str] = {row.name: row.source.name for row in OPTIONS.values() if isinstance(row, Inherited)}
_BROKER_ATTRIBUTES = {row.attribute: row.source.attribute for row in OPTIONS.values() if isinstance(row, Inherited)}
_FIXED = {row.attribute: row.default for row in OPTIONS.values() if not isinstance(row, Inherited)}


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """A topic's configuration. ConfigError names the unknown, malformed or invalid override."""
    values: dict[str, Any] = {name: getattr(broker, source) for name, source in _BROKER_ATTRIBUTES.items()}
    values.update(_FIXED)
    for name, text in overrides.items():
        row = OPTIONS.get(name)
        if row is None:
            raise ConfigError(f"Unknown topic config name: {name}")
        values[row.attribute] = row.parse(text)
    _settle(values, overrides)
    return TopicConfig(values)


def _settle(values: dict[str, Any], overrides: Mapping[str, str]) -> None:
    """Check combinations of options, and add derived values."""
    least, most = values["min_compaction_lag_ms"], values["max_compaction_lag_ms"]
    if least > most:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
    if values["remote_storage_enable"]:
        off = "Tiered Storage functionality is disabled in the broker."
        raise ConfigError(f"{off} Topic cannot be configured with remote log storage.")
    difference = values["message_timestamp_difference_max_ms"]
    if difference != LONG_MAX:
        for side in ("before", "after"):
            attribute = f"message_timestamp_{side}_max_ms"
            if values[attribute] == getattr(TopicConfig, attribute).default:
                values[attribute] = difference
    values["overrides"] = dict(overrides)
    values["compacts"] = "compact" in values["cleanup_policy"]
    values["deletes"] = "delete" in values["cleanup_policy"]
    values["magic"] = magic_of(values["message_format_version"])


def magic_of(version: str) -> int:
    """The record format of a Kafka version such as 0.9.0, 0.10.2-IV0 or 3.0: magic 1 came with 0.10, 2 with 0.11."""
    parts = version.partition("-")[0].split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise invalid(version, "message.format.version", "Not a version of Kafka")
    release = tuple(int(part) for part in parts[:2])
    if release < (0, 8):
        raise invalid(version, "message.format.version", "Not a version of Kafka")
    return 0 if release < (0, 10) else 1 if release < (0, 11) else 2
