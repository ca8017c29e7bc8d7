"""A pattern is matched against very many topics in slices, before the group's machine needs the result."""

from __future__ import annotations

from types import GeneratorType, SimpleNamespace
from typing import Any

from coord.groups.consumer_stage import ConsumerStage
from coord.groups.stage import done

from ottla.coord import patterns
from ottla.handlers import consumers
from ottla.handlers.call import Call
from ottla.wire.messages.consumers import ConsumerGroupHeartbeatRequest

TOPICS = 2_000
CALL = Call(68, 1, "client", "127.0.0.1", "PLAINTEXT", ("127.0.0.1", 9092))


def test_a_pattern_of_people_among_thousands_of_topics() -> None:
    patterns._found.clear()
    stage = ConsumerStage(topics={f"metrics-{number}": 1 for number in range(TOPICS)})
    image = stage.machine.image()
    matched: list[str] = []
    parts: Any = SimpleNamespace(
        config=SimpleNamespace(group_coordinator_rebalance_protocols=("consumer",)),
        metadata=SimpleNamespace(image=image),
        clock=SimpleNamespace(now_ms=lambda: 0),
        authorizer=None,
        groups=SimpleNamespace(peek=lambda _: stage.machine, run=lambda *_: matched.append("machine") or None),
    )
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_regex="^metrics-.*$",
        topic_partitions=[],
    )
    steps = consumers.consumer_group_heartbeat(parts, CALL, request)
    assert isinstance(steps, GeneratorType)
    for _ in range(TOPICS):
        next(steps)
        assert not matched, "the machine is asked when all is looked up"
    done(steps)
    assert matched == ["machine"]
    assert len(list(patterns.lookup("^metrics-.*$", image.topics))) == 0, "it finds it done"
    assert len(patterns.matching("^metrics-.*$", image.topics)) == TOPICS
