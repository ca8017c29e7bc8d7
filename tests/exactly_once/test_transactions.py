"""Transactions of every client family, step by step: all or nothing, zombies fenced, what is abandoned comes to an end.

Java 4.3.1 and franz-go speak the newer protocol of transactions, the others the older one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from compat.raw import Raw, create_topic
from exactly_once.conftest import SETTINGS, Mortal, MortalKafka
from exactly_once.reading import committed, high_watermark, last_stable, read_committed, read_everything
from exactly_once.transactors import OLD, OPENERS, Failed, Transactor
from judge import ZOOKEEPER
from waiting import wait_until

from ottla.client.cluster import Cluster
from ottla.client.fencing import look_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Place = Mortal | MortalKafka

FAMILIES = [pytest.param(name, marks=pytest.mark.xdist_group(f"transactor-{name}")) for name in OPENERS]


@pytest.fixture(scope="module")
def brokers(pytestconfig: pytest.Config) -> Iterator[Callable[[str], Place]]:
    """The broker for a family: one for all, but Apache Kafka 3.9 for those that Apache Kafka 4 does not serve."""
    running: dict[str, Place] = {}

    def chosen(family: str) -> Place:
        judged = pytestconfig.getoption("judge")
        kind = "old" if judged and family in OLD else "new"
        if kind not in running:
            made = MortalKafka(settings=SETTINGS, **({"version": ZOOKEEPER} if kind == "old" else {}))
            running[kind] = (made if judged else Mortal(settings=SETTINGS)).start()
        return running[kind]

    yield chosen
    for one in running.values():
        one.close()


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def place(family: str, brokers: Callable[[str], Place]) -> Place:
    return brokers(family)


@pytest.fixture(scope="module")
def transactor(family: str, place: Place) -> Iterator[Transactor]:
    opened = OPENERS[family](place.bootstrap)
    yield opened
    opened.close()


@pytest.fixture
def topic(place: Place, fresh: Callable[[str], str]) -> str:
    name = fresh("transactions")
    with Raw(place.port) as raw:
        assert create_topic(raw, name, 2) == 0
    return name


def both(place: Place, topic: str, read: Callable[[Place, str, int], list[bytes]]) -> list[list[bytes]]:
    return [read(place, topic, partition) for partition in (0, 1)]


def test_a_commit_shows_everything_at_once_and_an_abort_nothing(
    transactor: Transactor, place: Place, topic: str
) -> None:
    transactor.open("t", f"{topic}-id")
    transactor.begin("t")
    transactor.send("t", topic, 0, "a")
    transactor.send("t", topic, 1, "b")
    if "offsets" not in transactor.lacks:
        transactor.offsets("t", f"{topic}-group", topic, 0, 7)
    assert [last_stable(place, topic, index) for index in (0, 1)] == [0, 0]
    assert [high_watermark(place, topic, index) for index in (0, 1)] == [1, 1]
    assert both(place, topic, read_committed) == [[], []]
    assert both(place, topic, read_everything) == [[b"a"], [b"b"]]
    assert committed(place.bootstrap, f"{topic}-group", topic, 1) == {}
    transactor.commit("t")
    wait_until(lambda: [last_stable(place, topic, index) for index in (0, 1)] == [2, 2], "record and marker")
    assert both(place, topic, read_committed) == [[b"a"], [b"b"]]
    wanted = {} if "offsets" in transactor.lacks else {0: 7}
    wait_until(lambda: committed(place.bootstrap, f"{topic}-group", topic, 1) == wanted, "the offsets of the group")

    transactor.begin("t")
    transactor.send("t", topic, 0, "never")
    if "offsets" not in transactor.lacks:
        transactor.offsets("t", f"{topic}-group", topic, 0, 8)
    transactor.abort("t")
    wait_until(lambda: last_stable(place, topic) == 4, "the last stable offset moves on")
    assert read_committed(place, topic) == [b"a"]
    assert read_everything(place, topic) == [b"a", b"never"]
    assert committed(place.bootstrap, f"{topic}-group", topic, 1) == wanted
    transactor.begin("t")
    transactor.send("t", topic, 0, "c")
    transactor.commit("t")
    wait_until(lambda: read_committed(place, topic) == [b"a", b"c"], "the producer goes on after an abort")


def test_a_zombie_is_fenced(transactor: Transactor, place: Place, topic: str) -> None:
    transactor.open("old", f"{topic}-id")
    transactor.begin("old")
    transactor.send("old", topic, 0, "of the zombie")
    transactor.open("new", f"{topic}-id")
    transactor.begin("new")
    wait_until(lambda: last_stable(place, topic) == 2, "what it left open is aborted")
    transactor.send("new", topic, 0, "of its successor")
    if "fencing" not in transactor.lacks:
        with pytest.raises(Failed) as failed:
            transactor.send("old", topic, 0, "again of the zombie")
        assert failed.value.fenced, failed.value
    with pytest.raises(Failed):
        transactor.commit("old")
    assert last_stable(place, topic) == 2, "the transaction of the other is untouched"
    transactor.commit("new")
    wait_until(lambda: read_committed(place, topic) == [b"of its successor"], "only that")


def test_what_is_abandoned_is_aborted_after_its_time(transactor: Transactor, place: Place, topic: str) -> None:
    transactor.open("t", f"{topic}-id", timeout_ms=1000)
    transactor.begin("t")
    transactor.send("t", topic, 0, "abandoned")
    transactor.open("other", f"{topic}-other")
    transactor.begin("other")
    transactor.send("other", topic, 0, "held up")
    transactor.commit("other")
    wait_until(lambda: last_stable(place, topic) == 4, "two records, two markers")
    assert read_committed(place, topic) == [b"held up"]
    with pytest.raises(Failed):
        transactor.commit("t")
    assert read_committed(place, topic) == [b"held up"]
    transactor.open("again", f"{topic}-id")
    transactor.begin("again")
    transactor.send("again", topic, 0, "later")
    transactor.commit("again")
    wait_until(lambda: read_committed(place, topic) == [b"held up", b"later"], "the id is good for another")


def test_an_open_transaction_outlives_the_broker(transactor: Transactor, place: Place, topic: str) -> None:
    transactor.open("t", f"{topic}-id")
    transactor.begin("t")
    transactor.send("t", topic, 0, "before")
    place.restart(kill=not isinstance(place, MortalKafka) or place.kraft)
    with Cluster(place.bootstrap) as cluster:
        look_up(cluster, f"{topic}-id")  # there is a client that does not wait for its coordinator to be back
    assert last_stable(place, topic) == 0
    transactor.send("t", topic, 0, "after")
    transactor.commit("t")
    wait_until(lambda: read_committed(place, topic) == [b"before", b"after"], "both")
