"""The broker's loggers as a config resource: read and set their levels at runtime.

Python's loggers, with Kafka's names for levels. A logger without a level inherits that of its parent.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.cluster.alterations import DELETE, OPERATIONS, SET, OptionChange
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.configs import DescribeConfigsResourceResult

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = "root"
SOURCE = 6  # DYNAMIC_BROKER_LOGGER_CONFIG in the protocol
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}


def names() -> list[str]:
    """The broker's own loggers and the root logger."""
    known = logging.root.manager.loggerDict
    return [ROOT, *sorted(name for name in known if name == "ottla" or name.startswith("ottla."))]


def describe(wanted: Sequence[str] | None) -> list[DescribeConfigsResourceResult]:
    asked = None if wanted is None else frozenset(wanted)
    return [
        DescribeConfigsResourceResult(
            name=name, value=level(name), read_only=False, config_source=SOURCE, is_sensitive=False
        )
        for name in names()
        if asked is None or name in asked
    ]


def level(name: str) -> str:
    number = logger(name).getEffectiveLevel()
    return min(LEVELS, key=lambda text: abs(LEVELS[text] - number))


def alter(changes: Sequence[OptionChange], *, validate_only: bool) -> None:
    """Set or reset levels: all of them, or none if one is invalid."""
    known = names()
    for name, operation, value in changes:
        if operation not in (SET, DELETE):
            reason = f"{OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER resource"
            raise BrokerError(ErrorCode.INVALID_REQUEST, reason)
        if name not in known:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == SET and value not in LEVELS:
            reason = (
                f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(LEVELS)}"
            )
            raise BrokerError(ErrorCode.INVALID_CONFIG, reason)
        if operation == DELETE and name == ROOT:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    if not validate_only:
        for name, _, value in changes:
            logger(name).setLevel(LEVELS[value] if value is not None else logging.NOTSET)


def logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
