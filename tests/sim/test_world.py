"""Whole simulated clusters: a few seeds here, more with `make sim SEEDS=1000`.

Each mutant is a bug put into the code; the same scenarios must find it. Those with the faults that reveal it run first.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest
from sim.mutants import MUTANTS, Mutant

from ottla import descriptors
from ottla.sim.trial import tell

SEEDS = (1, 2, 3)  # a few of many, for every run of the suite
SEEDS_MAX = 30


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    outcome = tell(seed)
    assert outcome.wrong is None, f"{outcome}\nagain: python -m ottla.sim --seed {seed} --trace"
    assert outcome.acked > 100


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault.__name__)
def test_a_fault_in_the_code_is_found(mutant: Mutant) -> None:
    with mutant.fault():
        assert any(
            tell(seed, **mutant.options).wrong is not None for seed in range(mutant.first, mutant.first + SEEDS_MAX)
        )


def test_a_seed_is_the_same_story_twice() -> None:
    gc.disable()
    try:
        before = descriptors.count_open() or 0
        one, other = (tell(0, rounds=1, cast=("transactions", "seasons")) for _ in range(2))
        assert (descriptors.count_open() or 0) <= before, "a thousand stories in one process must not run out of files"
    finally:
        gc.enable()
    assert one == other
    assert one.wrong is None


def test_a_seed_is_the_same_story_in_every_process() -> None:
    def heard(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "ottla.sim", "--seed", "1", "--trace"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert heard("0") == heard("1"), "started again with the same order of sets"
