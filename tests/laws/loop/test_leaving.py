"""A client that disconnects while its request is handled in slices: the response is dropped, the work completes."""

from __future__ import annotations

import gc

import pytest
from handlers.wired import Wired
from laws.loop.test_batches import large, produce, wired  # noqa: F401
from records.malformed import record, wrap
from records.oracle import NOW
from waiting import wait_until

from ottla.wire.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic


def ends(wired: Wired) -> list[int]:  # noqa: F811
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(3)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="law", partitions=asked)])
    return [one.offset for one in wired.ask(request, 5).topics[0].partitions]


@pytest.mark.parametrize("acks", [0, -1])
def test_a_request_that_has_arrived_is_carried_out(wired: Wired, acks: int) -> None:  # noqa: F811
    """A producer with acks=0 is done when its bytes are sent: it may close the connection at once."""
    request = produce(large(), wrap(record(), NOW), large())
    request.acks = acks
    with Wired(wired._socket.getpeername()[1]) as leaving:
        leaving.send(request, 9)
    wait_until(lambda: ends(wired) == [1, 1, 1], "the records are stored", 20)


def test_a_failure_of_somebody_who_is_gone_is_no_fault_of_ours(
    wired: Wired,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = produce(large(), wrap(record(), NOW), large(), large())  # there is no partition 3
    request.acks = 0
    with Wired(wired._socket.getpeername()[1]) as leaving:
        leaving.send(request, 9)
    wait_until(lambda: ends(wired) == [1, 1, 1], "the records are stored", 20)
    gc.collect()
    ends(wired)
    assert "never retrieved" not in caplog.text
