"""Attacks by the content of batches: bombs, malformed records, and reading such a stored batch."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from compat.raw import FETCH, PRODUCE, Reader, array, batch, fetch, list_offset, produce_body, produced, string
from fuzz.hostile import bombs
from fuzz.hostile.stage import GONE, Stage, attack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compat.raw import Produced, Raw

LARGE: Final = str(50 << 20)
KINDS: Final = {
    "plain": lambda codec: {},
    "compacted": lambda codec: {"cleanup_policy": "compact"},
    "recompressing": lambda codec: {"compression_type": "gzip" if codec == "zstd" else "zstd"},
    "own clock": lambda codec: {"message_timestamp_type": "LogAppendTime"},
    "with a limit on times": lambda codec: {"message_timestamp_before_max_ms": "9000000000000"},
}


def sent(stage: Stage, raw: Raw, topic: str, data: bytes, version: int = 7) -> Produced | None:
    """Produce, and wait for an answer if there is one."""
    raw.send(PRODUCE, version, produce_body(topic, data, version=version))
    for answer in stage.hear(raw):
        return produced(Reader(answer[4:]), version)
    return None


def bombing(codec: str, kind: str) -> None:
    @attack(f"{codec} bomb of tiny records to a topic: {kind}")
    def perform(stage: Stage) -> Iterator[None]:
        topic = stage.topic("target", max_message_bytes=LARGE, **KINDS[kind](codec))
        # What snappy makes of it is large already.
        data = bombs.bomb(bombs.CODECS[codec], stage.size(500_000, 2_000_000 if codec == "snappy" else 10_000_000))
        yield
        sent(stage, stage.raw(), topic, data)


for one in bombs.CODECS:
    for two in ("plain", "compacted", "recompressing"):
        bombing(one, two)
for two in ("own clock", "with a limit on times"):
    bombing("zstd", two)


@attack("zstd bomb with a negative time")
def negative_time(stage: Stage) -> Iterator[None]:
    topic = stage.topic("target")
    data = bombs.bomb(bombs.ZSTD, stage.size(500_000, 10_000_000), -5)
    yield
    sent(stage, stage.raw(), topic, data)


def honest(name: str, codec: int, **configs: str) -> None:
    @attack(f"800,000 small records, {name}")
    def perform(stage: Stage) -> Iterator[None]:
        topic = stage.topic("target", max_message_bytes=LARGE, **configs)
        count = stage.size(200_000, 800_000)
        data = bombs.framed(codec, bombs.packed(codec, bombs.honest(count)), count)
        yield
        answer = sent(stage, stage.raw(), topic, data)
        assert answer is None or answer.error == 0, f"honest data is refused with {answer.error}"


honest("uncompressed", bombs.NONE)
honest("zstd", bombs.ZSTD)
honest("lz4 to a topic with gzip", bombs.LZ4, compression_type="gzip")


@attack("bombs in the older formats")
def old_formats(stage: Stage) -> Iterator[None]:
    topic = stage.topic("target", max_message_bytes=LARGE)
    data = [bombs.old_bomb(stage.size(200_000, 3_000_000), magic) for magic in (0, 1)]
    yield
    raw = stage.raw()
    for version, one in zip((0, 2), data, strict=True):
        sent(stage, raw, topic, one, version)


def reading(name: str, codec: int, read: Callable[[Stage, Raw, str], object]) -> None:
    """Store a bomb, if the broker lets us; then read."""

    @attack(name)
    def perform(stage: Stage) -> Iterator[None]:
        topic = stage.topic("target", max_message_bytes=LARGE)
        sent(stage, stage.raw(), topic, bombs.slow_to_rise(codec, stage.size(500_000, 5_000_000)))
        yield
        with suppress(*GONE):
            read(stage, stage.raw(), topic)


reading(
    "ListOffsets by time on a stored bomb", bombs.ZSTD, lambda _, raw, topic: list_offset(raw, topic, bombs.TIME_MS)
)
reading(
    "ListOffsets for the largest time on a stored bomb",
    bombs.ZSTD,
    lambda stage, raw, topic: (
        raw.send(2, 7, largest_time(topic), flexible=True),
        stage.hear(raw),
    ),
)
for number in (0, 1, 2, 3):
    reading(
        f"Fetch v{number} of a stored bomb",
        bombs.GZIP,
        lambda _, raw, topic, number=number: fetch(raw, topic, 0, version=number, size_max=1 << 20),
    )


def largest_time(topic: str) -> bytes:
    """ListOffsets v7 for the offset of the largest time, which is -3."""
    name = topic.encode()
    place = b"\x02" + (0).to_bytes(4, "big") + (-1).to_bytes(4, "big", signed=True)
    place += (-3).to_bytes(8, "big", signed=True) + b"\0"
    return (-1).to_bytes(4, "big", signed=True) + b"\0\x02" + bytes([len(name) + 1]) + name + place + b"\0\0"


@attack("twenty readers of a stored bomb in an old version at once")
def many_readers(stage: Stage) -> Iterator[None]:
    topic = stage.topic("target", max_message_bytes=LARGE)
    sent(stage, stage.raw(), topic, bombs.bomb(bombs.GZIP, stage.size(100_000, 1_000_000)))
    yield
    place = (0).to_bytes(4, "big") + (0).to_bytes(8, "big") + (1 << 20).to_bytes(4, "big")
    body = (-1).to_bytes(4, "big", signed=True) + bytes(4) + (1).to_bytes(4, "big")
    body += array([string(topic) + array([place])])

    def read() -> None:
        raw = stage.raw()
        raw.send(FETCH, 2, body)
        stage.hear(raw)

    stage.together([read] * 20)


@attack("malformed batches, one after the other")
def malformed(stage: Stage) -> Iterator[None]:
    plain = stage.topic("target")
    compacted = stage.topic("compacted", cleanup_policy="compact")
    hostile = bombs.malformed()
    yield
    raw = stage.raw()
    accepted = []
    for name, data in hostile.items():
        for topic in (plain, compacted):
            answer = sent(stage, raw, topic, data)
            assert answer is not None, f"no answer to {name}"
            if answer.error == 0:
                accepted.append(f"{name} ({topic})")
        stage.step(name)
    assert not accepted, f"accepted: {', '.join(accepted)}"
    for topic in (plain, compacted):
        assert list_offset(raw, topic, -1) == 0, "something was stored"
        good = sent(stage, raw, topic, batch([b"v"], keys=[b"k"]))
        assert good is not None, "no answer to a good batch"
        assert good.error == 0, "the topic takes good batches all the same"
