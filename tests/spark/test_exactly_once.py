"""The exactly-once protocol under every kind of bad luck: each row of each epoch is in the topic once."""

from __future__ import annotations

import os

import pytest
from spark.sink_model import World

SEEDS = int(os.environ.get("SEEDS", "300"))


@pytest.mark.parametrize("timeouts", [False, True])
def test_each_row_once_whatever_happens(timeouts: bool) -> None:
    ends = {"whole": 0, "lost and said so": 0}
    for seed in range(SEEDS):
        world = World(seed, timeouts=timeouts)
        world.run()
        if timeouts and world.lost:
            ends["lost and said so"] += 1
            assert all(count == 1 for count in world.cluster.visible.values()), seed
            continue
        ends["whole"] += 1
        assert world.cluster.visible == world.rows, f"seed {seed}"
    print(ends)
    assert ends["whole"] > SEEDS * 0.9
