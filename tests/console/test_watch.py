"""Lag in seconds, rates and findings: pure parts of what watches a cluster."""

from random import Random

import pytest

from ottla.client.cluster import TopicPartition
from ottla.client.groups import Committed
from ottla.console.watch.arrivals import SAMPLES_MAX, Arrivals
from ottla.console.watch.asking import GroupFacts
from ottla.console.watch.attention import findings, health
from ottla.console.watch.graph import edges, queries
from ottla.console.watch.lag import lags
from ottla.console.watch.rates import Rates
from ottla.console.watch.scraping import read
from ottla.console.watch.snapshot import Broker, Group, Partition, Snapshot, Topic

HERE = TopicPartition("orders", 0)


def a_topic(*ends: int, isr: tuple[int, ...] = (1, 2), start: int = 0) -> Topic:
    parts = tuple(Partition(index, 1, 0, (1, 2), isr, start, end, 10) for index, end in enumerate(ends))
    return Topic("orders", "id", False, parts)


def a_cluster(topic: Topic, silence: str | None = None, **more: object) -> Snapshot:
    brokers = {node: Broker(node, "host", 9092, None, silence if node == 2 else None, True) for node in (1, 2)}
    return Snapshot(version=1, controller=1, brokers=brokers, topics={topic.name: topic}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(50))
def test_arrivals_are_right_within_a_second_of_the_truth_wherever_they_claim_to_be(seed: int) -> None:
    random = Random(seed)
    arrivals, moments, now = Arrivals(), list[float](), 100.0
    arrivals.note(now, 0)
    for _ in range(300):
        for _ in range(random.randrange(20)):
            moments.append(now + random.random() * 1.5)
        moments.sort()
        now += 1.5
        arrivals.note(now, len(moments))
        for offset in random.sample(range(len(moments)), min(5, len(moments))):
            found = arrivals.estimate(offset)
            if found is not None and found.fine:
                assert abs(found.moment - moments[offset]) < 2
    assert len(arrivals) <= SAMPLES_MAX
    steady = Arrivals()
    for second in range(60):
        steady.note(float(second), 100 * second)
    assert steady.estimate(5950) is None, "not written yet"
    assert abs(steady.estimate(4550).moment - 45.5) < 0.1  # type: ignore[union-attr]


def test_a_log_that_was_cut_starts_from_nothing() -> None:
    arrivals = Arrivals()
    arrivals.note(1.0, 0)
    arrivals.note(2.0, 100)
    arrivals.note(3.0, 5)
    assert arrivals.estimate(50) is None


def test_partitions_that_were_never_committed_count_from_the_start_of_the_log() -> None:
    facts = GroupFacts("g", "classic", "Empty", "range", (), {HERE: Committed(90)})
    first, second = lags(facts, {"orders": a_topic(100, 50, start=20)}, lambda where, offset: 7.0)
    assert (first.records, first.seconds) == (10, 7.0)
    assert (second.committed, second.records) == (None, 30)
    caught = GroupFacts("g", "classic", "Empty", "range", (), {HERE: Committed(100)})
    assert lags(caught, {"orders": a_topic(100)}, lambda where, offset: 7.0)[0].seconds == 0.0


def test_rates_begin_anew_when_a_name_comes_back() -> None:
    rates = Rates()
    assert rates.note("a", 0.0, 100) == 0
    assert rates.note("a", 2.0, 300) == 100
    assert rates.note("a", 4.0, 10) == 0
    rates.keep(set())
    assert rates.note("a", 6.0, 1000) == 0


def test_health_is_one_sentence_and_says_what_to_do() -> None:
    assert health(a_cluster(a_topic(1)))[0] == "good"
    level, sentence = health(a_cluster(a_topic(1, isr=(1,)), "refused"))
    assert level == "bad"
    assert "Broker 2 does not answer" in sentence
    assert any("under" in one.what or "not in sync" in one.what for one in findings(a_cluster(a_topic(1, isr=(1,)))))
    assert health(Snapshot(version=3, problem="silence"))[0] == "bad"


def test_a_cluster_that_has_never_answered_is_not_said_to_lack_a_controller() -> None:
    (found,) = findings(Snapshot(version=3, problem="no connection to the broker at localhost:1"))
    assert found.what == "The cluster does not answer: no connection to the broker at localhost:1"
    assert "Check that a broker runs there" in found.advice
    assert findings(Snapshot()) == []


def test_spark_queries_are_known_by_their_commits_and_nonsense_is_not() -> None:
    said = '{"query":"q-1","run":"r","batch":12}'
    facts = GroupFacts("live", "classic", "Empty", "", (), {HERE: Committed(5, said)})
    behind = lags(facts, {"orders": a_topic(9)}, lambda where, offset: None)
    group = Group("live", "classic", "Empty", "", 1, (), behind, 3.0)
    other = group._replace(name="other", lags=(behind[0]._replace(metadata='{"query": []}'),))
    snapshot = a_cluster(a_topic(9), groups={"live": group, "other": other})
    (query,) = queries(snapshot)
    assert (query.name, query.batch, query.lag) == ("live", 12, 4)
    assert {edge.target for edge in edges(snapshot)} == {("query", "live"), ("group", "other")}


def test_figures_are_read_from_the_web_and_not_from_files() -> None:
    assert read(f"file://{__file__}") is None
