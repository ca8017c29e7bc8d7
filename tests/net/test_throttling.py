"""What is measured around a handler. tests/quota has what a client sees of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from handlers.wired import Wired
from quota.asking import entity, fetch, make_topic, port_of, set_quota

from ottla.embed import BrokerThread
from ottla.net import throttling

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with BrokerThread() as broker:
        made = port_of(broker)
        make_topic(made, "t")
        set_quota(made, entity(client_id="limited"), consumer_byte_rate=1000)
        yield made


def test_a_fetch_that_cannot_be_measured_after_it_has_waited_leaves_nobody_waiting(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no place in its answer for an error of ours, so the connection ends."""

    def fail(response: Any) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(throttling, "size_of", fail)
    with Wired(port, client_id="limited") as client, pytest.raises(ConnectionError):
        client.ask(fetch("t"), 12)
