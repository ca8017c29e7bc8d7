"""Every kind of fault once in a real cluster; `make chaos MINUTES=60` is the long run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_faults.chaos import Chaos

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(900)
def test_chaos_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path, seconds=45, seed=1, gap_s=1.0)
    chaos.run()
    print(chaos.report)
    assert chaos.violations == []
    assert chaos.failures == []
    assert chaos.recorder.count("acked") > 500
