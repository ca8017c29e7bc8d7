"""Operators at work while brokers fail: a few seeds; more with `python -m ottla.sim --operators --seeds 1000`."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.sim.operations import OPERATED
from ottla.sim.trial import tell

PRUNED: dict[str, Any] = {
    "directories": 2,
    "cast": ("seasons", "pruning"),
    "kinds": ("kill", "kill two", "spoil", "resign", "pause", "isolate", "depose", "orphan", "expire"),
}
OLD: dict[str, Any] = {"kinds": ("old disk", "kill", "pause", "stop"), "rounds": 8}


@pytest.mark.parametrize("world", [OPERATED, PRUNED, OLD], ids=["operated", "pruned", "old"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_cluster_keeps_its_promises(seed: int, world: dict[str, Any]) -> None:
    outcome = tell(seed, **world)
    assert outcome.wrong is None, f"{outcome}: {world}"
    assert outcome.acked > 100
