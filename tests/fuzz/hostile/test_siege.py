"""Ten seconds of all attacks at once. `make siege MINUTES=10` is the real thing, and judges waits by the clock."""

from __future__ import annotations

import pytest
from fuzz.hostile.siege import besiege


@pytest.mark.xdist_group("live-fuzz")
def test_all_attacks_at_once_harm_nobody_else() -> None:
    verdict = besiege(1.0, 10.0, 500)
    assert not verdict.wrong, verdict.table()
    assert verdict.idle > 400
    assert verdict.under_attack["rounds"] > 10
