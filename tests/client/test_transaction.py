"""Transactions step by step, in the newer and the older protocol; each step may come twice."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from client.records import decided, fresh, numbers, read, restart
from process import Ottla

from ottla.client.cluster import TRANSACTION, Cluster, TopicPartition
from ottla.client.failure import Failed, Refused
from ottla.client.groups import Committed, read_offsets
from ottla.client.producing import Sender
from ottla.client.transaction import ProducerIdentity, add_offsets, end, enlist, identify, newer_protocol, ongoing
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from client.records import Broker

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


def written(cluster: Cluster, identity: ProducerIdentity, where: TopicPartition, first: int, sequence: int = 0) -> None:
    with Sender(cluster, identity=identity) as sender:
        sender.send(where, [numbers(first, 5, identity=identity, sequence=sequence)])
        sender.flush()


def test_the_life_of_a_transactional_id(any_age: Broker) -> None:
    with Cluster(any_age.bootstrap) as cluster:
        where = fresh(cluster)
        name = f"life-{where.topic}"
        identity = identify(cluster, name, timeout_ms=60_000)
        assert pickle.loads(pickle.dumps(identity)) == identity == ProducerIdentity(name, identity.producer_id, 0)
        sequence, expected = 0, []
        for first, commits in ((0, True), (5, False), (10, True)):
            enlist(cluster, identity, [where])
            enlist(cluster, identity, [where])
            written(cluster, identity, where, first, sequence)
            assert ongoing(cluster, "life-") == [name]
            assert ongoing(cluster, "none-") == []
            assert read(cluster, where, committed=True) == expected
            after = end(cluster, identity, commit=commits)
            assert end(cluster, identity, commit=commits) == after  # as if the answer had been lost
            with pytest.raises(Refused):
                end(cluster, identity, commit=not commits)
            expected += list(range(first, first + 5)) if commits else []
            decided(cluster, where)
            assert ongoing(cluster, "life-") == []
            assert read(cluster, where, committed=True) == expected
            assert (after != identity) == newer_protocol(cluster)
            sequence = 0 if after != identity else sequence + 5
            identity = after


def test_the_next_of_that_name_fences_and_aborts(any_age: Broker) -> None:
    with Cluster(any_age.bootstrap) as cluster:
        where = fresh(cluster)
        name = f"fence-{where.topic}"
        old = identify(cluster, name, timeout_ms=60_000)
        enlist(cluster, old, [where])
        written(cluster, old, where, 0)
        new = identify(cluster, name, timeout_ms=60_000)
        assert (new.producer_id, new.epoch > old.epoch) == (old.producer_id, True)
        for step in (
            lambda: enlist(cluster, old, [where]),
            lambda: written(cluster, old, where, 5, 5),
            lambda: end(cluster, old, commit=True),
        ):
            with pytest.raises(Refused) as caught:
                step()
            assert caught.value.code in FENCED
        enlist(cluster, new, [where])
        written(cluster, new, where, 10)
        end(cluster, new, commit=True)
        decided(cluster, where)
        assert read(cluster, where, committed=True) == [10, 11, 12, 13, 14]


def test_offsets_follow_the_transaction(any_age: Broker) -> None:
    with Cluster(any_age.bootstrap) as cluster:
        where = fresh(cluster)
        group = f"group-{where.topic}"
        identity = identify(cluster, f"offsets-{where.topic}", timeout_ms=60_000)
        for offset, commits, seen in ((5, False, {}), (6, True, {where: Committed(6, "six")})):
            add_offsets(cluster, identity, group, {where: Committed(offset, "six")})
            identity = end(cluster, identity, commit=commits)
            assert read_offsets(cluster, group, [where]) == seen  # waits for what is not decided


def test_a_transaction_outlives_its_broker(either: Broker) -> None:
    with Cluster(either.bootstrap, timeout_s=60) as cluster:
        where = fresh(cluster)
        identity = identify(cluster, f"outlive-{where.topic}", timeout_ms=60_000)
        enlist(cluster, identity, [where])
        written(cluster, identity, where, 0)
        restart(either)
        written(cluster, identity, where, 5, 5)
        end(cluster, identity, commit=True)
        decided(cluster, where)
        assert read(cluster, where, committed=True) == list(range(10))


def test_two_phases_where_they_are_permitted(either: Broker) -> None:
    with Cluster(either.bootstrap) as cluster, pytest.raises(Refused) as caught:
        identify(cluster, "two-phase", timeout_ms=60_000, two_phase=True)
    assert caught.value.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with (
        Ottla(settings={"transaction.two.phase.commit.enable": "true"}) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        assert identify(cluster, "two-phase", timeout_ms=60_000, two_phase=True).epoch == 0


def test_what_makes_no_sense_is_refused(own: Broker) -> None:
    with Cluster(own.bootstrap) as cluster:
        where = fresh(cluster)
        name = f"sense-{where.topic}"
        identity = identify(cluster, name, timeout_ms=60_000)
        with pytest.raises(Refused, match=f"committing the transaction of {name}: .*INVALID_TXN_STATE"):
            end(cluster, identity, commit=True)  # nothing was begun
        with pytest.raises(Refused, match=r"nowhere partition 3.*UNKNOWN_TOPIC_OR_PARTITION"):
            enlist(cluster, identity, [where, TopicPartition("nowhere", 3)])
        enlist(cluster, identity, [])
        with pytest.raises(Failed, match="needs a transactional id"):
            end(cluster, identify(cluster, None, timeout_ms=0), commit=True)
        with pytest.raises(Refused, match="INVALID_TRANSACTION_TIMEOUT"):
            identify(cluster, name, timeout_ms=1 << 30)
        assert cluster.coordinator(name, TRANSACTION).alive
