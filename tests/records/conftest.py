from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from records.oracle import Kafka

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One JVM for all tests that ask Apache Kafka."""
    kafka = Kafka()
    yield kafka
    kafka.close()
