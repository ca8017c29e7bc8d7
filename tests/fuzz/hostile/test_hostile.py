"""One attack after the other, each on a broker of its own with a good client beside it; see stage.py for the judgement.

The table at the end of the run shows what each attack cost. `make fuzz` has them in full size.
"""

from __future__ import annotations

from itertools import chain, groupby, zip_longest

import pytest
from fuzz.hostile import attacks_of_arrays, attacks_of_connections, attacks_of_patterns, attacks_of_records
from fuzz.hostile.stage import ATTACKS, Attack, Stage

assert all((attacks_of_arrays, attacks_of_connections, attacks_of_patterns, attacks_of_records)), "they register"
# The first of each file before the second of any: a quick run has only a few of them.
FILES = [list(some) for _, some in groupby(ATTACKS, key=lambda attack: attack.perform.__module__)]
MIXED = [attack for attack in chain(*zip_longest(*FILES)) if attack is not None]


@pytest.mark.parametrize("attack", MIXED, ids=lambda attack: attack.name)
def test_an_attack_harms_nobody_else(attack: Attack, record_property: pytest.FixtureRequest) -> None:
    with Stage(attack.settings) as stage:
        outcome = stage.judge(attack)
    record_property("hostile", outcome.line())  # type: ignore[operator]
    assert not outcome.bad, f"{outcome.bad}\n{outcome}"
