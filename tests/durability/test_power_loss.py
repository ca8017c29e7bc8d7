"""Power cuts, simulated: kill -9, then every byte that no fsync has covered is taken away, torn or turned to zeros.

With flush.messages=1 an acknowledgement means that the record is on the disk: nothing acknowledged may be missing.
Without it Kafka promises less (replicas keep the data): the log must open, end at a whole batch, and be a beginning of
what was written.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from durability import faults
from durability.load import Load, Memory, Writer, check, prepare
from process import Ottla

if TYPE_CHECKING:
    from pathlib import Path

CUTS = 5
PARTITIONS = 2


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("acks", [1, -1], ids=["acks=1", "acks=-1"])
def test_with_flush_messages_1_nothing_acknowledged_is_lost(acks: int, seed: int, tmp_path: Path) -> None:
    configs = {"segment.bytes": "65536", "flush.messages": "1"}
    story(f"power loss {acks} {seed}", tmp_path, configs, acks=acks, all_acked=True)


def test_without_flushing_the_log_is_a_beginning_of_what_was_written(tmp_path: Path) -> None:
    # One segment: of several, Kafka too keeps a later one whose beginning got to the disk before the end of the former.
    story("power loss, no flush", tmp_path, {}, acks=1, all_acked=False)


def story(name: str, folder: Path, configs: dict[str, str], *, acks: int, all_acked: bool) -> None:
    chance = random.Random(name)
    load = Load([Writer(f"w{n}", n, random.Random(f"{name} {n}"), acks=acks) for n in range(PARTITIONS)])
    memories = [Memory(partition) for partition in range(PARTITIONS)]
    place = folder / "faults"
    place.mkdir()
    lost, starts = 0, []
    with Ottla(folder, wrapper=(faults.__file__,), environment={"OTTLA_FAULTS": str(place)}) as broker:
        prepare(broker.port, PARTITIONS, configs)
        for _ in range(CUTS):
            load.start(broker.port)
            load.under_way(chance.randrange(20, 200))
            time.sleep(chance.uniform(0, 0.05))  # the moment of the cut
            broker.kill()
            load.stop()
            lost += faults.power_cut(broker.log_dir, place, chance)
            broker.start()
            starts.append(broker.start_s)
            for memory, writer in zip(memories, load.writers, strict=True):
                memory.read(broker.port)
                check(memory, [writer], all_acked=all_acked)
                assert memory.values == survivors(memory.values, writer), "not a beginning of what was written"
                if not all_acked:  # what is gone is gone: the next acknowledgements may take its offsets
                    writer.acked = {at: value for at, value in writer.acked.items() if at < len(memory.values)}
        assert broker.stop() == 0
    assert lost > 0, "no cut met a byte that was not on the disk yet"
    print(f"\n{name}: {CUTS} cuts, {lost} bytes were not on the disk, {load.acked} records acknowledged")
    print(f"start after a cut: worst {max(starts) * 1000:.0f} ms")


def survivors(values: list[bytes], writer: Writer) -> list[bytes]:
    """The records of the writer in its order, without those that are not there."""
    there = set(values)
    return [value for value in writer.sent_all if value in there]
