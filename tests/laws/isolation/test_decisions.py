"""A coordinator survives a log that cannot be read, written or created for a while: it does the pending work later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from handlers.test_transactions import add, end, init, produce, read
from handlers.wired import Wired
from waiting import wait_until

from ottla import BrokerThread
from ottla.coord.transactions import markers
from ottla.errors import BrokerError, ErrorCode
from ottla.replica import partition
from ottla.wire.messages.commits import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.groups import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.transactions import DescribeTransactionsRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.log.store import LogStore

WAIT_S = 10.0


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerThread]:
    monkeypatch.setattr("ottla.coord.runtime.RETRY_S", 0.02, raising=False)
    monkeypatch.setattr("ottla.coord.transactions.ending.RETRY_S", 0.02)
    with BrokerThread(
        options={"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 1}
    ) as started:
        yield started


@pytest.fixture
def wired(broker: BrokerThread) -> Iterator[Wired]:
    with Wired(int(broker.bootstrap.rpartition(":")[2])) as connected:
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=bytes(16), name="t")], allow_auto_topic_creation=True
        )
        assert connected.ask(asked, 9).topics[0].error_code == 0
        yield connected


def store_of(broker: BrokerThread) -> LogStore:
    root = broker._broker._root
    assert root is not None
    return root._store


def full(*_: Any, **__: Any) -> Any:
    raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")


def state_of(wired: Wired, name: str) -> str:
    found = wired.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]
    return str(found.transaction_state)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_over_as_soon_as_that_can_be_written_down(
    broker: BrokerThread, wired: Wired, monkeypatch: pytest.MonkeyPatch, *, commit: bool
) -> None:
    """The disk is full exactly between the decision and the record that every marker is written."""
    answer = init(wired, "x")
    producer = answer.producer_id, answer.producer_epoch
    assert add(wired, "x", producer, "t") == ErrorCode.NONE
    assert produce(wired, "x", producer, "t", b"v", 0).error_code == ErrorCode.NONE
    log = store_of(broker).logs["__transaction_state", 0]
    genuine, calls = partition.append_own, []

    def append(one: object, *arguments: Any, **options: Any) -> Any:
        if one is log:
            calls.append(arguments)
        return full() if one is log and 1 < len(calls) < 5 else genuine(one, *arguments, **options)

    monkeypatch.setattr(partition, "append_own", append)
    assert end(wired, "x", producer, commit=commit).error_code == ErrorCode.NONE
    wait_until(lambda: state_of(wired, "x") == ("CompleteCommit" if commit else "CompleteAbort"))
    assert len(calls) == 5


@pytest.mark.parametrize("trouble", [MemoryError(), OSError(24, "too many open files"), AssertionError("a bug")])
def test_a_marker_is_written_however_the_first_tries_end(
    broker: BrokerThread, wired: Wired, trouble: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = init(wired, "x")
    producer = answer.producer_id, answer.producer_epoch
    assert add(wired, "x", producer, "t") == ErrorCode.NONE
    assert produce(wired, "x", producer, "t", b"v", 0).error_code == ErrorCode.NONE
    tries: list[Any] = []

    def append(*arguments: Any) -> None:
        tries.append(arguments)
        if len(tries) < 3:
            raise trouble
        genuine(*arguments)

    genuine = markers.append
    monkeypatch.setattr(markers, "append", append)
    assert end(wired, "x", producer, commit=True).error_code == ErrorCode.NONE
    wait_until(lambda: state_of(wired, "x") == "CompleteCommit")
    assert read(wired, "t", committed=True) == [b"v"]


def test_groups_are_coordinated_as_soon_as_their_log_can_be_made(broker: BrokerThread, wired: Wired) -> None:
    store = store_of(broker)
    genuine = store.create
    store.create = full  # type: ignore[method-assign]
    wired.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    store.create = genuine  # type: ignore[method-assign]

    def committed() -> bool:
        wired.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)  # as a refused client does
        one = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name="t", partitions=[one])]
        asked = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)
        return bool(wired.ask(asked, 8).topics[0].partitions[0].error_code == ErrorCode.NONE)

    wait_until(committed)
