"""How far batches go, also in simulations: topics grow, disappear and come back while a query crashes."""

import json
from dataclasses import dataclass, field
from itertools import count
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.cluster import TopicPartition
from ottla.spark.source.admission import (
    ClusterReport,
    Loss,
    advance,
    early,
    failure,
    pending,
    ranges,
    reach,
    resume,
    share,
)
from ottla.spark.source.checkpoint import Position, load

A, B = UUID(int=1), UUID(int=2)
VISITS = TopicPartition("visits", 0)
NEXT = TopicPartition("visits", 1)


def everything(where: TopicPartition) -> bool:
    return True


def seen(*spans: tuple[TopicPartition, int, int], ident: UUID | None = A, cluster: str | None = "c") -> ClusterReport:
    earliest = {where: low for where, low, _ in spans}
    high = {where: top for where, _, top in spans}
    return ClusterReport(cluster, dict.fromkeys({where.topic for where in earliest}, ident), earliest, high, high)


def at(offset: int, ident: UUID | None = A, cluster: str | None = "c") -> Position:
    return Position({VISITS: offset}, {}, {"visits": ident}, cluster, "5f")


def test_a_batch_goes_to_the_end() -> None:
    end, losses = advance(at(5), seen((VISITS, 0, 20)), everything)
    assert losses == []
    assert ranges(at(5), end) == {VISITS: (5, 20)}
    assert end == at(20)


def test_nothing_new_is_the_same_place() -> None:
    end, losses = advance(at(20), seen((VISITS, 0, 20)), everything)
    assert end.same_place(at(20))
    assert losses == []


def test_a_partition_that_comes_later_is_read_from_its_start() -> None:
    end, losses = advance(at(20), seen((VISITS, 0, 20), (NEXT, 0, 3)), everything)
    assert ranges(at(20), end) == {VISITS: (20, 20), NEXT: (0, 3)}
    assert losses == []


def test_the_first_batch_does_not_depend_on_where_a_query_would_start_later() -> None:
    start = Position({VISITS: 5}, {VISITS: 5}, {"visits": A}, "c", "5f")
    end, _ = advance(start, seen((VISITS, 0, 9)), everything)
    later = Position({VISITS: 30}, {VISITS: 30}, {"visits": A}, "c", "aa")
    assert ranges(later, end) == {VISITS: (5, 9)}
    assert ranges(later, start) == {VISITS: (5, 5)}


@pytest.mark.parametrize(
    ("start", "now", "said", "goes_on"),
    [
        (
            at(5),
            seen((VISITS, 8, 20)),
            "visits partition 0 starts at offset 8 now, and offsets 5 to 7 are gone unread (retention or deleted "
            "records): set failOnDataLoss to false to continue at offset 8, or start with a new checkpointLocation",
            (8, 20),
        ),
        (
            at(7),
            seen((VISITS, 8, 8)),
            "offset 7 is gone unread",
            (8, 8),
        ),
        (
            at(30),
            seen((VISITS, 0, 20)),
            "visits partition 0 ends at offset 20, before offset 30 where the query stands, so the cluster has lost "
            "records: set failOnDataLoss to false to continue at offset 20",
            (20, 20),
        ),
        (at(30, None), seen((VISITS, 0, 20), ident=None), "to continue at offset 0", (0, 20)),
        (
            at(5),
            seen((VISITS, 0, 9), ident=B),
            "topic visits was deleted and recreated since the last batch (its id was "
            "00000000-0000-0000-0000-000000000001 and is 00000000-0000-0000-0000-000000000002), so the unread "
            "records of the old one are gone: set "
            "failOnDataLoss to false to continue at the start of the new one",
            (0, 9),
        ),
        (at(5), seen((VISITS, 0, 5), ident=B), "was deleted and recreated", (0, 5)),
        (
            at(5),
            seen((VISITS, 0, 9), cluster="d"),
            "the checkpoint belongs to cluster c, but kafka.bootstrap.servers to cluster d: set failOnDataLoss to "
            "false to continue at the start of its topics",
            (0, 9),
        ),
        (at(5), seen(), "topic visits is gone, with its unread records: set failOnDataLoss to false", None),
        (at(5), seen((NEXT, 0, 0)), "partition 0 of topic visits is gone", None),
        (
            Position({NEXT: 4}, {}, {"visits": A}, "c"),
            seen((VISITS, 3, 9), (NEXT, 0, 4)),
            "visits partition 0 is new to the query and starts at offset 3 now, and offsets 0 to 2 are gone unread",
            (3, 9),
        ),
    ],
)
def test_losses(start: Position, now: ClusterReport, said: str, goes_on: tuple[int, int] | None) -> None:
    end, losses = advance(start, now, everything)
    assert len(losses) == 1
    assert said in str(failure(losses))
    assert ranges(start, end).get(VISITS) == goes_on
    again, none = advance(end, now, everything)
    assert again.same_place(end), "a loss is told once"
    assert none == []


def test_many_losses_are_one_sentence() -> None:
    text = str(failure([Loss("one is gone", "at 1"), Loss("two is gone", "at 2"), Loss("three is gone", "at 3")]))
    assert text.startswith("one is gone (and 2 more such losses): set failOnDataLoss to false to continue at 1, or")


def test_a_topic_that_nobody_asks_for_any_more_is_no_loss() -> None:
    end, losses = advance(at(5), seen((TopicPartition("clicks", 0), 0, 1)), lambda where: where.topic == "clicks")
    assert losses == []
    assert set(end.offsets) == {("clicks", 0)}


def test_ids_that_are_not_known_prove_nothing() -> None:
    assert resume(at(5, None), seen((VISITS, 0, 9)), everything) == ({VISITS: 5}, [])
    assert resume(at(5), seen((VISITS, 0, 9), ident=None), everything) == ({VISITS: 5}, [])
    assert resume(at(5, cluster=None), seen((VISITS, 0, 9)), everything) == ({VISITS: 5}, [])


def test_open_transactions_are_waited_for_and_are_no_loss() -> None:
    now = ClusterReport("c", {"visits": A}, {VISITS: 0}, {VISITS: 4}, {VISITS: 20})
    end, losses = advance(at(10), now, everything)
    assert (end.offsets, losses) == ({VISITS: 10}, [])


def test_a_target_ends_what_comes_later() -> None:
    target = Position({VISITS: 10}, ids={"visits": A}, cluster="c")
    now = seen((VISITS, 0, 20), (NEXT, 0, 5))
    assert reach({VISITS: 3, NEXT: 0}, now, target) == {VISITS: 10, NEXT: 0}
    assert reach({VISITS: 15, NEXT: 0}, now, target) == {VISITS: 15, NEXT: 0}, "never back"
    anew = seen((VISITS, 0, 20), ident=B)
    assert reach({VISITS: 0}, anew, target) == {VISITS: 0}, "a topic made anew came later"


spans = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 9)),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    min_size=1,
)


@given(spans, st.integers(1, 10**6))
def test_shares(spans: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    begins = {where: begin for where, (begin, _) in spans.items()}
    ends = {where: begin + size for where, (begin, size) in spans.items()}
    shared = share(begins, ends, limit)
    sizes = {where: shared[where] - begins[where] for where in spans}
    busy = [where for where, (_, size) in spans.items() if size]
    assert all(begins[where] <= shared[where] <= ends[where] for where in spans)
    assert all(sizes[where] for where in busy), "nobody starves"
    assert sum(sizes.values()) <= limit + len(busy), "only who would starve gets more than a share"
    total = sum(size for _, size in spans.values())
    assert sum(sizes.values()) >= min(limit, total) - len(busy), "rounding takes less than one each"
    if total <= limit:
        assert shared == ends


@pytest.mark.parametrize(
    ("size", "least", "waited_ms", "waits"),
    [(5, 10, 1, True), (5, 10, 1000, False), (10, 10, 1, False), (5, None, 1, False), (0, 10, None, False)],
)
def test_small_batches_wait(size: int, least: int | None, waited_ms: float | None, waits: bool) -> None:
    assert early(size, least, waited_ms, 1000) is waits


# --- worlds --------------------------------------------------------------------------------------------------------


@dataclass
class Topic:
    ident: UUID
    spans: list[list[int]] = field(default_factory=lambda: [[0, 0]])  # earliest, end


class World:
    """A cluster, a query on all its topics, and Spark with its two logs: offsets before a batch, commits after it."""

    def __init__(self, seed: int, *, losing: bool) -> None:
        self.random = Random(seed)
        self.losing = losing
        self.ids = count(1)
        self.topics = {"a": Topic(UUID(int=next(self.ids)))}
        self.planned: list[str] = []
        self.committed = 0
        self.initial: Position | None = None
        self.written: set[tuple[UUID, int, int]] = set()
        self.gone: set[tuple[UUID, int, int]] = set()
        self.read: list[tuple[UUID, int, int]] = []
        self.losses = 0

    def seen(self) -> ClusterReport:
        earliest, high = {}, {}
        for name, topic in self.topics.items():
            for index, (low, top) in enumerate(topic.spans):
                earliest[TopicPartition(name, index)] = low
                high[TopicPartition(name, index)] = top
        return ClusterReport("c", {name: topic.ident for name, topic in self.topics.items()}, earliest, high, high)

    def append(self) -> None:
        topic = self.random.choice(list(self.topics.values()))
        index = self.random.randrange(len(topic.spans))
        for _ in range(self.random.choice([1, 7, 60])):
            self.written.add((topic.ident, index, topic.spans[index][1]))
            topic.spans[index][1] += 1

    def grow(self) -> None:
        if (free := sorted(set("bcd") - self.topics.keys())) and self.random.random() < 0.3:
            self.topics[self.random.choice(free)] = Topic(UUID(int=next(self.ids)))
        else:
            self.random.choice(list(self.topics.values())).spans.append([0, 0])

    def lose(self) -> None:
        name = self.random.choice(list(self.topics))
        topic = self.topics[name]
        what = self.random.randrange(4)
        if what == 0:
            for index, (low, top) in enumerate(topic.spans):
                self.gone |= {(topic.ident, index, offset) for offset in range(low, top)}
            self.topics[name] = Topic(UUID(int=next(self.ids)))
        else:
            index = self.random.randrange(len(topic.spans))
            low, top = topic.spans[index]
            topic.spans[index][0] = self.random.randint(low, top)
            self.gone |= {(topic.ident, index, offset) for offset in range(low, topic.spans[index][0])}

    def start(self) -> Position:
        if self.committed:
            return load(json.loads(self.planned[self.committed - 1]))
        if self.initial is None:  # startingOffsets=latest: another one in each run
            found = dict(self.seen().high) if self.random.random() < 0.5 else dict(self.seen().earliest)
            self.initial = Position(found, found, dict(self.seen().ids), "c", "5f")
        return self.initial

    def plan(self, limit: int | None, target: Position | None = None) -> bool:
        if len(self.planned) > self.committed:
            return True
        start = self.start()
        end, losses = advance(start, self.seen(), everything, limit=limit, target=target)
        self.losses += len(losses)
        if end.same_place(start) and self.committed:
            return False
        if not self.committed:
            self.written -= {  # before the query's own beginning
                (self.topics[where.topic].ident, where.partition, offset)
                for where, begin in ranges(start, end).items()
                for offset in range(begin[0])
                if where in start.offsets
            }
        self.planned.append(json.dumps(end.dump()))
        return True

    def run(self) -> None:
        start, end = self.start(), load(json.loads(self.planned[-1]))
        for where, (begin, stop) in ranges(start, end).items():
            assert begin <= stop
            ident = end.ids[where.topic]
            assert ident is not None
            self.read += [
                (ident, where.partition, offset)
                for offset in range(begin, stop)
                if (ident, where.partition, offset) not in self.gone
            ]
        self.committed += 1

    def crash(self) -> None:
        self.initial = None

    def step(self) -> None:
        deeds = [self.append] * 4 + [self.grow, self.crash] + ([self.lose] if self.losing else [])
        self.random.choice(deeds)()
        if self.random.random() < 0.5 and self.plan(self.random.choice([None, 1, 10, 50])):
            if self.random.random() < 0.5:
                self.crash()
            else:
                self.run()


@pytest.mark.parametrize("losing", [False, True])
@pytest.mark.parametrize("seed", range(100))
def test_no_offset_is_lost_or_read_twice(seed: int, losing: bool) -> None:
    world = World(seed, losing=losing)
    for _ in range(60):
        world.step()
    rounds = 0
    while world.plan(50):
        world.run()
        rounds += 1
        assert rounds < 1000, "it ends"
    assert len(set(world.read)) == len(world.read)
    assert world.written - world.gone <= set(world.read)
    if not losing:
        assert set(world.read) == world.written
        assert world.losses == 0


@pytest.mark.parametrize("seed", range(100))
def test_available_now_ends_whatever_happens_meanwhile(seed: int) -> None:
    world = World(seed, losing=True)
    for _ in range(30):
        world.step()
    now = world.seen()
    target = Position(now.latest, ids=now.ids, cluster=now.cluster)
    written = set(world.written)
    before = set(world.read)
    if len(world.planned) > world.committed:
        world.run()
        before = set(world.read)
    for _ in range(1000):
        if not world.plan(20, target):
            break
        world.run()
        for _ in range(3):
            world.random.choice([world.append, world.append, world.grow, world.lose])()
    else:
        pytest.fail("it does not end")
    assert set(world.read) - before <= written, "what came later is for another run"


def test_the_size_of_a_batch() -> None:
    end, _ = advance(at(5), seen((VISITS, 0, 20), (NEXT, 0, 3)), everything)
    assert pending(at(5), end) == 18
