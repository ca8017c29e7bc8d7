"""Collects the results of an operation on a group, and turns them into a Decision at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coord.machine import Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coord.machine import Record, TimerKey, Token
    from ottla.errors import ErrorCode


class Outcome:
    __slots__ = ("on_failure", "records", "replies", "timers")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[tuple[Token, Any]] = []
        self.timers: list[tuple[TimerKey, int | None]] = []
        self.on_failure: Callable[[ErrorCode], Decision] | None = None

    def reply(self, token: Token, response: Any) -> None:
        self.replies.append((token, response))

    def timer(self, key: TimerKey, due_ms: int | None) -> None:
        self.timers.append((key, due_ms))

    def decision(self) -> Decision:
        return Decision(self.records, self.replies, self.timers, on_failure=self.on_failure)

    def without_records(self, _: ErrorCode) -> Decision:
        """The decision without its records, for records that may be lost: they are optional or written again."""
        return Decision((), self.replies, self.timers)
