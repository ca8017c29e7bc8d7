"""A response may wait for minutes. Its request is freed meanwhile: both its lists and its frame."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, cast

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired
from net.test_dispatch import END, PEER, framed, instead
from quota.asking import entity, make_topic, set_quota
from replica.making import Host, state
from replica.test_partition import play
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.handlers.call import Call
from ottla.handlers.produce import Work
from ottla.net.answer import Deferred
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.transactions import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.handlers.call import Parts, Steps

NAMED = 500  # more than are read in one time slice
MINUTES_MS = 600_000


def count(kind: type) -> int:
    gc.collect()
    return sum(type(one) is kind for one in gc.get_objects())


@pytest.mark.parametrize("in_steps", [False, True])
def test_the_dispatcher_holds_no_request_that_waits(in_steps: bool) -> None:
    async def scene() -> None:
        future = asyncio.get_running_loop().create_future()

        def handle(*_: Any) -> Any:
            return take_steps() if in_steps else future

        def take_steps() -> Steps[EndTxnResponse]:
            yield future
            return EndTxnResponse(error_code=0)

        before = count(EndTxnRequest)
        with instead(26, handle) as dispatch:
            late = dispatch(PEER, framed(END, 26, 3))
            assert isinstance(late, Deferred)
            assert count(EndTxnRequest) == before
            future.set_result(EndTxnResponse(error_code=0))
            await asyncio.wait([late.future])
            assert late.encode(late.future)

    asyncio.run(scene())


@pytest.mark.parametrize("named", [NAMED, 3])
@pytest.mark.parametrize("limited", [False, True])
def test_a_fetch_that_waits_holds_no_list_of_its_request(tmp_path: Path, named: int, limited: bool) -> None:
    options = {"auto.create.topics.enable": "true", "num.partitions": str(named)}
    with BrokerThread(data=tmp_path, options=options) as broker, Wired(port_of(broker)) as client:
        make_topic(port_of(broker), "t")
        if limited:
            set_quota(port_of(broker), entity(client_id="test"), consumer_byte_rate=1 << 30)
        before = count(FetchPartition)
        partitions = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1000) for at in range(named)]
        request = FetchRequest(
            max_wait_ms=MINUTES_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic="t", partitions=partitions)],
        )
        client.send(request, 12)
        del request, partitions
        root = broker._broker._root
        assert root is not None
        waits = root._founding.replicas.waits
        wait_until(lambda: len(waits) == 1)
        wait_until(lambda: count(FetchPartition) == before, lambda: count(FetchPartition))
        assert len(waits) == 1, "it still waits"


def test_a_produce_that_waits_holds_no_records(tmp_path: Path) -> None:
    """One that was handled in slices, and has a copy of its records."""

    async def story(host: Host) -> None:
        partition = host.assign(state())  # its followers never fetch
        before = count(PartitionProduceData)
        data = PartitionProduceData(index=partition.index, records=memoryview(b""))
        topic = TopicProduceData(name=partition.topic, topic_id=bytes(16), partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=MINUTES_MS, topic_data=[topic])
        work = Work(cast("Parts", host), Call(0, 9, "c", "h", "l", ("h", 1)), request)
        end = host.append(partition).last
        work.note(partition, end, end, -1, 0)
        steps = work.put_off()
        del request, topic, data, work
        try:
            while True:
                assert next(steps) is None
        except StopIteration as stop:
            waiting = stop.value
        assert asyncio.isfuture(waiting)
        assert not waiting.done()
        assert count(PartitionProduceData) == before
        waiting.cancel()

    play(tmp_path, story)
