"""Requests that change a lot run one at a time: a decoded one takes some fifty times its bytes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired

from ottla.embed import BrokerThread
from ottla.handlers import load
from ottla.handlers.call import REGISTRY
from ottla.net.dispatch import LARGE_CHANGE_SIZE, SMALL_CHANGE_SIZE
from ottla.net.turns import Lane
from ottla.wire.messages.configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResponse
from ottla.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

ALTER_CONFIGS = 33


class Work:
    """Work that takes a while in a task, and counts how many run at once."""

    def __init__(self) -> None:
        self.running = self.most = self.done = 0

    async def __call__(self, parts: Any, call: Any, request: AlterConfigsRequest) -> AlterConfigsResponse:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(20):
            await asyncio.sleep(0.001)
        self.running -= 1
        self.done += 1
        return AlterConfigsResponse(responses=[])


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    load()
    made = Work()
    monkeypatch.setitem(REGISTRY, ALTER_CONFIGS, replace(REGISTRY[ALTER_CONFIGS], function=made))
    return made


def request(size: int) -> AlterConfigsRequest:
    resource = AlterConfigsResource(resource_type=2, resource_name="x" * 90, configs=[])
    return AlterConfigsRequest(resources=[resource] * (size // 97 + 1), validate_only=True)


def test_large_changes_of_many_clients_go_one_after_the_other(tmp_path: Path, work: Work) -> None:
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as other:
        peers = [Wired(port_of(broker)) for _ in range(5)]
        for peer in peers:
            peer.send(request(LARGE_CHANGE_SIZE), 1)
        assert other.ask(MetadataRequest(topics=[]), 9).brokers, "others go first"
        for peer in peers:
            assert peer.receive().responses == []
            peer.__exit__(None, None, None)
    assert (work.most, work.done) == (1, 5)


@pytest.mark.parametrize("size", [SMALL_CHANGE_SIZE, LARGE_CHANGE_SIZE])
def test_a_connection_has_one_of_some_size_under_way(tmp_path: Path, work: Work, size: int) -> None:
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        for _ in range(5):
            wired.send(request(size), 1)
        for _ in range(5):
            assert wired.receive().responses == []
    assert (work.most, work.done) == (1, 5)


def test_clients_that_leave_do_not_make_them_more(tmp_path: Path, work: Work) -> None:
    """A request that has arrived is carried out even if its client has disconnected."""
    with BrokerThread(data=tmp_path) as broker:
        for _ in range(5):
            with Wired(port_of(broker)) as leaving:
                leaving.send(request(LARGE_CHANGE_SIZE), 1)
        with Wired(port_of(broker)) as wired:
            assert wired.ask(request(LARGE_CHANGE_SIZE), 1).responses == []
    assert (work.most, work.done) == (1, 6)


def test_a_strict_lane_goes_on_after_a_failure_and_after_one_that_nobody_wants() -> None:
    async def scene() -> None:
        lane, log = Lane(strict=True), list[str]()
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        second: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def steps(name: str, awaited: asyncio.Future[None] | None) -> Generator[Any, None, str]:
            log.append(name)
            if awaited is not None:
                yield awaited
                awaited.result()
            yield
            return name

        a, b, c, d = (lane.add(steps(*one)) for one in (("a", first), ("b", second), ("c", None), ("d", None)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert log == ["a"]
        c.cancel()
        first.set_exception(RuntimeError("a bug"))
        with pytest.raises(RuntimeError, match="a bug"):
            await a
        for _ in range(5):
            await asyncio.sleep(0)
        assert log == ["a", "b"]
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await b
        assert await d == "d"
        assert log == ["a", "b", "d"]
        assert len(lane) == 0

    asyncio.run(scene())
