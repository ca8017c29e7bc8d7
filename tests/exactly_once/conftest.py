"""Brokers for this suite: one that a test may kill, with few partitions of internal topics and short time-outs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import judge
import pytest
from exactly_once import copier
from process import Ottla

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS: Final = {
    **copier.SETTINGS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


class Mortal(Ottla):
    def restart(self, *, kill: bool = False) -> None:
        if kill:
            self.kill()
        else:
            assert self.stop() == 0
        self.start()


class MortalKafka(judge.Kafka):
    def restart(self, *, kill: bool = False) -> None:
        self.stop(kill=kill)
        self.start()


@pytest.fixture
def own_broker(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Mortal | MortalKafka]:
    kind = MortalKafka if pytestconfig.getoption("judge") else Mortal
    with kind(tmp_path / "broker", settings=SETTINGS) as running:
        yield running
