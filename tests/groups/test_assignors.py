"""Every assignor of every client, in groups whose members come, go, crash, freeze and crowd (scenario.py).

Each family tells the story once, to all its assignors at the same time; the tests hold the recorded histories to the
laws of history.py: one owner for every partition at all times, nothing lost, no commit goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from groups import history
from groups.scenario import Plan, Story, told

if TYPE_CHECKING:
    from collections.abc import Callable

    import judge
    from process import Ottla

EAGER: Final = ("range", "roundrobin", "sticky")
CLASSIC: Final = {
    "confluent-kafka": ("range", "roundrobin", "cooperative-sticky"),
    "kafka-python": (*EAGER, "cooperative-sticky"),
    "aiokafka": EAGER,
    "java-4.3.1": (*EAGER, "cooperative-sticky"),
    "franz-go": (*EAGER, "cooperative-sticky"),
    "kafkajs": ("roundrobin",),
}
CONSUMER: Final = dict.fromkeys(("confluent-kafka", "java-4.3.1", "franz-go"), ("uniform", "range"))
STICKY: Final = ("sticky", "cooperative-sticky", "uniform")
# In an eager rebalance these two forget on the way what their members had, with every broker.
NOT_SO_STICKY: Final = {("aiokafka", "sticky"), ("franz-go", "sticky")}
NO_STATIC: Final = {"kafkajs"}


def plans(family: str, protocol: str) -> list[Plan]:
    assignors = (CLASSIC if protocol == "classic" else CONSUMER)[family]
    found = [Plan(assignor, protocol) for assignor in assignors]
    return found if family in NO_STATIC else [*found, Plan(assignors[0], protocol, static=True)]


# A member that was away too long still claims what it had, and this leader believes it: it shares out partitions that
# another member gives up only then. For a moment both read them, on any broker; generations are still kept apart.
BELIEVES_THE_ABSENT = {("kafka-python", "cooperative-sticky")}


def cases(*, static: bool = False, sticky: bool = False) -> list[object]:
    return [
        pytest.param(family, plan, id=f"{family}-{plan}", marks=pytest.mark.xdist_group(f"groups-{family}-{protocol}"))
        for protocol, families in (("classic", CLASSIC), ("consumer", CONSUMER))
        for family in families
        for plan in plans(family, protocol)
        if plan.static is static
        if not sticky or (plan.assignor in STICKY and (family, plan.assignor) not in NOT_SO_STICKY)
    ]


@pytest.fixture(scope="session")
def stories(group_broker: Ottla | judge.Kafka, fresh: Callable[[str], str]) -> Callable[[str, Plan], Story]:
    """Each family's story, told when the first test asks for it."""
    known: dict[tuple[str, str], dict[Plan, Story]] = {}

    def tell(family: str, plan: Plan) -> Story:
        key = family, plan.protocol
        if key not in known:
            topics = [fresh(f"{side}-{family}-{plan.protocol}") for side in ("left", "right")]
            known[key] = told(family, group_broker.bootstrap, plans(*key), topics)
        return known[key][plan]

    return tell


@pytest.mark.parametrize(("family", "plan"), cases())
def test_one_owner_for_every_partition_at_all_times(
    family: str, plan: Plan, stories: Callable[[str, Plan], Story]
) -> None:
    story = stories(family, plan)
    assert not story.unsettled
    assert not history.failures(story.events)
    if (family, plan.assignor) not in BELIEVES_THE_ABSENT:
        assert not history.one_owner(story.events)
        assert not history.one_reader(story.events)
        assert not history.no_way_back(story.events)
    assert not history.nothing_lost(story.events, story.ends, story.remembered)
    if plan.protocol == "classic":
        assert not history.one_owner_in_a_generation(story.events)
    assert min(story.ends.values()) > 100, "too little was written for the story to mean anything"


@pytest.mark.parametrize(("family", "plan"), cases(sticky=True))
def test_a_sticky_assignor_takes_only_what_it_must(
    family: str, plan: Plan, stories: Callable[[str, Plan], Story]
) -> None:
    story = stories(family, plan)
    assert not story.unsettled
    a, b, v = (f"{plan}/{member}" for member in "abv")
    alone, three, two, crashed, crowd = (story.steps[step] for step in ("alone", "three", "two", "crashed", "crowd"))
    assert len(alone[a]) == len(crashed[a]) == 4
    assert three[a] <= two[a], "who stays keeps what it has when somebody leaves"
    assert three[v] <= two[v]
    assert crowd[a] <= crashed[a]
    if plan.assignor != "sticky":
        assert not history.taken_for_nothing(story.events), "an incremental rebalance leaves alone what stays"
    assert set(three) == {a, b, v}


@pytest.mark.parametrize(("family", "plan"), cases(static=True))
def test_a_static_member_comes_back_to_what_it_had_and_nobody_notices(
    family: str, plan: Plan, stories: Callable[[str, Plan], Story]
) -> None:
    story = stories(family, plan)
    assert not story.unsettled
    s, t, u = (f"{plan}/{member}" for member in "stu")
    before, after = story.steps["static"], story.steps["restarted"]
    assert after[u] == before[t], "the partitions of the one whose place it takes"
    assert after[s] == before[s]
    settled_at = max(event.at for event in story.events if event.member in (s, t) and event.what == "assigned")
    moves = ("revoked", "lost", "assigned")
    taken = [str(event) for event in story.events
             if event.member == s and event.what in moves and event.at > settled_at]  # fmt: skip
    assert not taken, "the other member was not disturbed"
    assert not history.failures(story.events)
    assert not history.one_owner(story.events)
    assert not history.one_reader(story.events)
    assert not history.no_way_back(story.events)
    assert not history.nothing_lost(story.events, story.ends, story.remembered)
