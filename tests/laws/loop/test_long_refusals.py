"""A request with a long list that its sender is not authorized for is refused in slices, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired
from laws.loop.gaps import HELD_MAX, held
from laws.loop.test_long_lists import REQUESTS

from ottla.embed import BrokerThread

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def closed() -> Iterator[BrokerThread]:
    """A broker that denies everything."""
    options = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with BrokerThread(options=options) as broker:
        yield broker


@pytest.mark.parametrize("what", REQUESTS)
def test_a_long_refusal_does_not_hold_the_loop(closed: BrokerThread, what: str) -> None:
    def ask() -> None:
        with Wired(port_of(closed)) as wired:
            wired.ask(*REQUESTS[what])

    assert held(closed, ask) < HELD_MAX
