"""Dynamic config changes: validates them, and computes the result of a list of changes. Pure.

A change sets, deletes, appends to or subtracts from one config. Error codes and messages are Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.cluster.image import EVERY_BROKER
from ottla.config import BrokerConfig, ConfigError, topic_config
from ottla.config.broker import OPTIONS as BROKER_OPTIONS
from ottla.config.client_metrics import UnknownError, client_metrics_config
from ottla.config.group import OPTIONS as GROUP_OPTIONS
from ottla.config.group import group_config
from ottla.config.option import CLUSTER_WIDE, LIST, READ_ONLY, text_of
from ottla.config.security import is_for_listener, listener_row
from ottla.config.topic import OPTIONS as TOPIC_OPTIONS
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.cluster.metadata import Metadata
    from ottla.config.option import Option

SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS = ("SET", "DELETE", "APPEND", "SUBTRACT")


class OptionChange(NamedTuple):
    name: str
    operation: int
    value: str | None


class Altered(NamedTuple):
    """The configs of one topic, broker, group or subscription, before and after."""

    before: Mapping[str, str]
    after: Mapping[str, str]


def alter_topic(metadata: Metadata, name: str, changes: Iterable[OptionChange], *, replace: bool) -> Altered:
    """With `replace`, here and below, configs that are not mentioned are reset to their defaults."""
    before, config = metadata.image.topic(name).configs, metadata.config
    after = apply_changes({} if replace else before, changes, TOPIC_OPTIONS, topic_defaults(config))
    check_topic_configs(config, after)
    return Altered(before, after)


def alter_broker(metadata: Metadata, broker: str, changes: Iterable[OptionChange], *, replace: bool) -> Altered:
    before = metadata.image.broker_configs.get(broker, {})
    after = apply_changes({} if replace else before, changes, BROKER_OPTIONS, broker_defaults(metadata.config))
    check_broker_configs(metadata.static, broker, before, after)
    return Altered(before, after)


def alter_group(metadata: Metadata, group: str, changes: Iterable[OptionChange], *, replace: bool) -> Altered:
    before = metadata.image.group_configs.get(group, {})
    after = apply_changes({} if replace else before, changes, GROUP_OPTIONS, {})
    check_group_configs(metadata.config, after)
    return Altered(before, after)


def alter_client_metrics(metadata: Metadata, name: str, changes: Iterable[OptionChange], *, replace: bool) -> Altered:
    """As in Kafka, append and subtract are not supported."""
    before = metadata.image.client_metrics.get(name, {})
    after = apply_changes({} if replace else before, changes, {}, {})
    check_client_metrics(after)
    return Altered(before, after)


def check_topic_configs(config: BrokerConfig, pairs: Mapping[str, str]) -> None:
    try:
        topic_config(config, pairs)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_broker_configs(
    config: BrokerConfig, broker: str, before: Mapping[str, str], pairs: Mapping[str, str]
) -> None:
    """Raise unless these configs may be set dynamically, for one broker or (EVERY_BROKER) for all."""
    from ottla.config.others import OTHERS  # a long table, imported late for a faster start

    changed = [name for name in pairs if before.get(name) != pairs[name]]
    for name in changed:
        if name in OTHERS:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"{name} cannot be set while running: {OTHERS[name].reason}")
        if name not in BROKER_OPTIONS and listener_row(name) is None:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {name}")
    rows = {name: BROKER_OPTIONS.get(name) or listener_row(name) for name in changed}
    fixed = [name for name, row in rows.items() if row is not None and row.live == READ_ONLY]
    if fixed:
        reason = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
    unprefixed = [name for name in changed if name.startswith("ssl.")]
    if unprefixed:
        reason = (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(unprefixed)}]"
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
    own = [name for name, row in rows.items() if row is not None and row.live != CLUSTER_WIDE]
    if own and broker == EVERY_BROKER:
        reason = (
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(own)}]"
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
    try:
        for name in changed:
            is_for_listener(name, pairs[name], {listener.name for listener in config.opened})
        after = config.overlay(pairs)
        topic_config(after, {})
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if "log.cleaner.threads" in changed and after.log_cleaner_threads < 1:  # 0 is only allowed at the start
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Log cleaner threads should be at least 1")


def check_group_configs(config: BrokerConfig, pairs: Mapping[str, str]) -> None:
    try:
        group_config(config, pairs)
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_client_metrics(pairs: Mapping[str, str]) -> None:
    try:
        client_metrics_config(pairs)
    except UnknownError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from None
    except ConfigError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from None


def apply_changes(
    before: Mapping[str, str],
    changes: Iterable[OptionChange],
    rows: Mapping[str, Option],
    defaults: Mapping[str, str | None],
) -> dict[str, str]:
    """The configs after a list of changes. APPEND and SUBTRACT start from `defaults` when a config is not set."""
    after = {**before}
    for name, operation, value in changes:
        if operation == DELETE:
            after.pop(name, None)
        elif not 0 <= operation < len(OPERATIONS):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}")
        elif value is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        elif operation == SET:
            after[name] = value
        else:
            row = rows.get(name)
            if row is None or row.kind != LIST:
                reason = f"Can't {OPERATIONS[operation]} to key {name} because its type is not LIST."
                raise BrokerError(ErrorCode.INVALID_CONFIG, reason)
            after[name] = _splice(after.get(name, defaults.get(name)) or "", operation, value)
    return after


def change_user(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The values of a user after some changes."""
    return {name: value for name, value in {**before, **changes}.items() if value is not None}


def _splice(present: str, operation: int, value: str) -> str:
    items = [item.strip() for item in present.split(",") if item.strip()]
    for item in (part.strip() for part in value.split(",")):
        if operation == APPEND and item not in items:
            items.append(item)
        elif operation == SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def topic_defaults(config: BrokerConfig) -> dict[str, str | None]:
    """The default of every topic config."""
    stock = topic_config(config, {})
    return {name: text_of(getattr(stock, row.attribute)) for name, row in TOPIC_OPTIONS.items()}


def broker_defaults(config: BrokerConfig) -> dict[str, str | None]:
    return {name: text_of(getattr(config, row.attribute)) for name, row in BROKER_OPTIONS.items()}
