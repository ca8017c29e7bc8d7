"""The fetch session state machine: full, incremental, forgotten, evicted."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from ottla.errors import BrokerError, ErrorCode
from ottla.replica.sessions import EPOCH_MAX, Sessions
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.wire.schema import ZERO_UUID


def request(
    partitions: dict[tuple[str, int], int],
    *,
    session: int = 0,
    epoch: int = 0,
    forget: tuple[tuple[str, int], ...] = (),
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=ZERO_UUID,
                partitions=[FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)],
            )
            for (topic, index), offset in partitions.items()
        ],
        forgotten_topics_data=[ForgottenTopic(topic=t, topic_id=ZERO_UUID, partitions=[i]) for t, i in forget],
    )


def sessions(slots: int = 10, eviction_ms: int = 1000) -> Sessions:
    numbers = count(1)
    return Sessions(slots, eviction_ms, lambda: next(numbers))


def opened(cache: Sessions, asked: FetchRequest, now_ms: int = 0, *, by_id: bool = False) -> Any:
    session, incremental, watched = cache.open(asked, now_ms, by_id=by_id)
    return session, incremental, [(one.topic, one.index, one.offset) for one in watched]


def test_a_fetch_that_wants_no_session_gets_none() -> None:
    cache = sessions()
    assert opened(cache, request({("t", 0): 5}, epoch=-1)) == (None, False, [("t", 0, 5)])
    assert len(cache) == 0


def test_an_incremental_fetch_carries_only_changes() -> None:
    cache = sessions()
    session, incremental, watched = opened(cache, request({("t", 0): 0, ("u", 1): 0}))
    assert (session.id, incremental, len(watched)) == (1, False, 2)
    session, incremental, watched = opened(cache, request({("t", 0): 7, ("v", 2): 1}, session=1, epoch=1))
    assert incremental
    assert watched == [("t", 0, 7), ("u", 1, 0), ("v", 2, 1)]
    _, _, watched = opened(cache, request({}, session=1, epoch=2, forget=(("u", 1),)))
    assert watched == [("t", 0, 7), ("v", 2, 1)]


@pytest.mark.parametrize(
    ("session", "epoch", "by_id", "code"),
    [
        (99, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_fetch_that_does_not_fit_its_session_is_refused(
    session: int, epoch: int, by_id: bool, code: ErrorCode
) -> None:
    cache = sessions()
    opened(cache, request({("t", 0): 0}))
    with pytest.raises(BrokerError) as refused:
        cache.open(request({}, session=session, epoch=epoch), 0, by_id=by_id)
    assert refused.value.code is code


def test_a_full_fetch_replaces_the_session_it_names_and_a_final_one_ends_it() -> None:
    cache = sessions()
    opened(cache, request({("t", 0): 0}))
    assert opened(cache, request({("t", 0): 0}, session=1))[0].id == 2
    assert len(cache) == 1
    opened(cache, request({("t", 0): 0}, session=2, epoch=-1))
    assert len(cache) == 0


def test_a_session_whose_last_partition_is_forgotten_is_gone() -> None:
    cache = sessions()
    opened(cache, request({("t", 0): 0}))
    assert opened(cache, request({}, session=1, epoch=1, forget=(("t", 0),))) == (None, True, [])
    assert len(cache) == 0


def test_epochs_wrap_to_one() -> None:
    cache = sessions()
    session, _, _ = opened(cache, request({("t", 0): 0}))
    session.epoch = EPOCH_MAX
    opened(cache, request({}, session=1, epoch=EPOCH_MAX))
    assert session.epoch == 1


def test_partitions_that_gave_data_come_last_next_time() -> None:
    cache = sessions()
    session, _, watched = cache.open(request({("t", 0): 0, ("u", 0): 0, ("v", 0): 0}), 0, by_id=False)
    assert session is not None
    session.move_to_end(watched[:1])
    assert [t for t, _, _ in opened(cache, request({}, session=1, epoch=1))[2]] == ["u", "v", "t"]


def test_a_full_cache_gives_up_an_unused_session_or_a_smaller_one_or_refuses() -> None:
    cache = sessions(slots=1, eviction_ms=1000)
    first, large = opened(cache, request({("t", 0): 0, ("u", 0): 0}), now_ms=0)[0], {("v", n): 0 for n in range(3)}
    assert opened(cache, request(large), now_ms=999)[0] is None, "larger, but the other is young"
    opened(cache, request({}, session=first.id, epoch=1), now_ms=999)
    assert opened(cache, request({("v", 0): 0}), now_ms=1001)[0] is None, "in use, and larger"
    assert opened(cache, request(large), now_ms=1001)[0].id == 2, "larger wins"
    assert opened(cache, request({("v", 0): 0}), now_ms=2500)[0].id == 3, "unused for long enough"
    assert len(cache) == 1


def test_no_slots_means_no_sessions() -> None:
    assert opened(sessions(slots=0), request({("t", 0): 0}))[0] is None


def test_all_sessions_together_watch_so_many_partitions_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.replica.sessions.WATCHED_MAX", 10)
    cache = sessions()
    first, _, _ = opened(cache, request({("t", index): 0 for index in range(6)}))
    none, _, watched = opened(cache, request({("u", index): 0 for index in range(5)}))
    assert (none, len(watched)) == (None, 5), "it is served, without a session"
    second, _, _ = opened(cache, request({("u", index): 0 for index in range(4)}))
    with pytest.raises(BrokerError) as refused:
        opened(cache, request({("u", 9): 0}, session=second.id, epoch=1))
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    opened(cache, request({}, session=first.id, epoch=1, forget=tuple(("t", index) for index in range(5))))
    third, _, _ = opened(cache, request({("u", index): 0 for index in range(9)}))
    assert third is not None
