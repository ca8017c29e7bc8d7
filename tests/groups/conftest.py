"""A broker for group tests: sessions may be short, and there is no delay before the first rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import judge
import pytest
from groups.scenario import SETTINGS
from process import Ottla

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def group_broker(pytestconfig: pytest.Config) -> Iterator[Ottla | judge.Kafka]:
    with judge.Kafka(settings=SETTINGS) if pytestconfig.getoption("judge") else Ottla(settings=SETTINGS) as running:
        yield running
