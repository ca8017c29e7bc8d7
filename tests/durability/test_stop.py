"""SIGTERM drains: what was accepted is answered, nothing acknowledged is lost, the next start trusts the folder."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

from compat.raw import FETCH, Closed, Raw, array, batch, create_topic, produce, read_all, string
from durability.load import Load, Memory, Writer, check, prepare
from process import Ottla

if TYPE_CHECKING:
    from pathlib import Path

MARKER = ".kafka_cleanshutdown"


def test_sigterm_under_load_loses_nothing_and_leaves_a_clean_marker(tmp_path: Path) -> None:
    load = Load([Writer(f"w{n}", n % 2, random.Random(n), acks=(1, -1)[n % 2]) for n in range(4)])
    memories = [Memory(n) for n in range(2)]
    with Ottla(tmp_path) as broker:
        prepare(broker.port, 2, {"segment.bytes": "65536"})
        for _ in range(3):
            load.start(broker.port)
            load.under_way(50)
            assert broker.stop() == 0, "it ended by itself, long before it would have been killed"
            load.stop()
            assert (broker.log_dir / MARKER).exists()
            broker.start()
            assert not (broker.log_dir / MARKER).exists(), "a crash from here on must not look like a clean stop"
            for memory in memories:
                memory.read(broker.port)
                check(memory, load.writers)
    assert load.acked > 100


def test_a_waiting_fetch_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    with Ottla(tmp_path) as broker, Raw(broker.port) as raw:
        assert create_topic(raw, "t") == 0
        place = string("t") + array([(0).to_bytes(4, "big") + (0).to_bytes(8, "big") + (1 << 20).to_bytes(4, "big")])
        wait = (-1).to_bytes(4, "big", signed=True) + (60_000).to_bytes(4, "big") + (1).to_bytes(4, "big")
        raw.send(FETCH, 4, wait + (1 << 20).to_bytes(4, "big") + b"\0" + array([place]))
        with Raw(broker.port) as other:
            assert produce(other, "t", b"").error != 0, "served while the fetch waits"
        assert broker.stop() == 0, "it did not wait for the minute that the fetch may wait"
        with contextlib.suppress(Closed):
            raw.receive()


def test_topics_options_and_records_survive_a_stop_and_a_kill(tmp_path: Path) -> None:
    with Ottla(tmp_path) as broker:
        with Raw(broker.port) as raw:
            for n in range(5):
                assert create_topic(raw, f"t{n}", n + 1, {"retention.ms": "-1"}) == 0
                assert produce(raw, f"t{n}", batch([b"v%d" % n]), partition=n).base == 0
        for end in (broker.stop, broker.kill):
            end()
            broker.start()
            with Raw(broker.port) as raw:
                for n in range(5):
                    assert create_topic(raw, f"t{n}") == 36, "it exists"
                    assert [part.values() for part in read_all(raw, f"t{n}", partition=n)] == [[b"v%d" % n]]
