"""Attacks by patterns: regular expressions that are slow in common engines."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from compat.raw import INIT_PRODUCER_ID, Raw, string
from fuzz.hostile.stage import Stage, attack
from handlers.wired import Wired
from waiting import wait_until

from ottla.wire import codec, frame
from ottla.wire.messages.consumers import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.transactions import ListTransactionsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

PATTERNS: Final = {
    "nested repeats of a long class": "([" + "ab" * 490 + "]{1000}){3}",
    "nested repeats": "((((a{1,100}){1,100}){1,100}){1,100})b",
    "alternatives in a star": "(a|aa|aaa|aaaa)+b",
    "long": "|".join(f"t-{number}" for number in range(3000)),
    "deep": "(" * 490 + "a" + ")" * 490,
    "many choices": "([abcdefgh]?" * 80 + ")" * 80,
    "stars of stars": "(((((a*)*)*)*)*)*b",
}


def heartbeat(group: str, pattern: str) -> bytes:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=f"member-of-{group}",
        member_epoch=0,
        rebalance_timeout_ms=5000,
        subscribed_topic_names=[],
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )
    return frame.request_header(68, 1, 1, "attacker") + codec.encode(request, 1)


def topics(stage: Stage) -> None:
    for number in range(20):
        stage.topic("a" * 40 + str(number))


def subscribing(name: str, pattern: str) -> None:
    @attack(f"KIP-848 pattern: {name}")
    def perform(stage: Stage) -> Iterator[None]:
        topics(stage)
        yield
        raw = stage.raw()
        raw.send_frame(heartbeat("group", pattern))
        stage.hear(raw)


for what, text in PATTERNS.items():
    subscribing(what, text)


@attack("thirty KIP-848 patterns at once")
def many_patterns(stage: Stage) -> Iterator[None]:
    topics(stage)
    yield
    raws = [stage.raw() for _ in range(30)]
    for number, raw in enumerate(raws):
        raw.send_frame(heartbeat(f"group-{number}", list(PATTERNS.values())[number % 2]))
    stage.together([lambda raw=raw: stage.hear(raw) for raw in raws])  # type: ignore[misc]


def listing(pattern: str) -> None:
    @attack(f"ListTransactions with the pattern {pattern[:30]}")
    def perform(stage: Stage) -> Iterator[None]:
        with Raw(stage.port) as raw:
            name = string("a" * 60)

            def made() -> bool:
                answer = raw.call(INIT_PRODUCER_ID, 0, name + struct.pack(">i", 60_000))
                answer.int32()
                return answer.int16() == 0

            wait_until(made, "the coordinator of transactions")
        yield
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
        stage.sent += len(pattern)
        with Wired(stage.port, timeout_s=stage.size(10, 60)) as wired:
            wired.ask(request, 2)


listing("(a|aa)+b")
listing("(a*)*b")
listing("((((a{1,30}){1,30}){1,30}){1,30})b")
