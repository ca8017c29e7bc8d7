"""Every kind of event, one scenario each: what is in the store afterwards, and which requests brokers got."""

from __future__ import annotations

import json

import pytest
from cluster.control.world import World

from ottla.cluster import znodes
from ottla.cluster.control import events
from ottla.cluster.control.context import ControlSettings, Deposed
from ottla.cluster.control.messages import ControlVersions, versions_of
from ottla.cluster.metadata_store import Create, Delete, Set
from ottla.errors import BrokerError, ErrorCode
from ottla.wire.messages.peers import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

UNCLEAN = {"unclean.leader.election.enable": "true"}


def world_with(*replicas: tuple[int, ...], brokers: tuple[int, ...] = (0, 1, 2), **configs: str) -> World:
    """An active controller, and a topic `t` with these partitions."""
    world = World(*brokers)
    world.write_topic("t", *replicas, **configs)
    world.elect()
    world.settle()
    world.sent.clear()
    return world


def gone(world: World, *brokers: int) -> None:
    for broker in brokers:
        world.unregister(broker)
    world.run(events.BrokersChanged())
    world.settle()


def back(world: World, *brokers: int) -> None:
    for broker in brokers:
        world.register(broker)
    world.run(events.BrokersChanged())
    world.settle()


def test_new_topic_gets_leaders_and_every_broker_hears_of_them() -> None:
    world = World(0, 1, 2)
    world.elect()
    world.sent.clear()
    world.write_topic("t", (1, 0), (2, 1))
    world.run(events.TopicsChanged())
    assert (world.lead("t").leader, world.lead("t").isr, world.lead("t").leader_epoch) == (1, (1, 0), 0)
    assert world.lead("t", 1).leader == 2
    for broker in (0, 1, 2):
        assert world.metadata(broker) == {("t", 0): 1, ("t", 1): 2}
    told = {
        broker: [(state.partition_index, state.is_new) for state in request.topic_states[0].partition_states]
        for broker, request in world.take_sent(LeaderAndIsrRequest)
    }
    assert told == {0: [(0, True)], 1: [(0, True), (1, True)], 2: [(1, True)]}
    assert "t" in world.watched


def test_topic_without_a_live_replica_waits_for_one() -> None:
    world = World(0, 1)
    world.elect()
    world.write_topic("t", (2,))
    world.run(events.TopicsChanged())
    assert world.leads() == {}
    back(world, 2)
    assert world.lead("t").leader == 2


def test_topics_of_tools_without_ids_get_one() -> None:
    world = World(0)
    world.write_topic("old", (0,), with_id=False)
    world.elect()
    fields = json.loads(world.tree.nodes[znodes.topic_path("old")].data)
    assert fields["version"] == 3
    assert znodes.decode_uuid(fields["topic_id"])


def test_old_tool_that_adds_partitions_does_not_cost_the_id() -> None:
    world = world_with((0, 1))
    known = world.topic_id("t")
    data = json.dumps({"version": 1, "partitions": {"0": [0, 1], "1": [1, 2]}}).encode()
    world.tree.do(Set(znodes.topic_path("t"), data))
    world.run(events.TopicsWritten(["t"]))
    assert world.lead("t", 1).leader == 1
    assert world.topic_id("t") == known


def test_existing_partitions_cannot_be_moved_by_writing_the_topic() -> None:
    world = world_with((0, 1))
    data = json.dumps({"version": 1, "partitions": {"0": [2]}}).encode()
    world.tree.do(Set(znodes.topic_path("t"), data))
    world.run(events.TopicsWritten(["t"]))
    assert world.assignment("t").replicas == (0, 1)


def test_malformed_topic_is_left_alone_until_it_is_put_right() -> None:
    world = World(0)
    world.tree.do(Create(znodes.topic_path("broken"), b"{"))
    world.write_topic("t", (0,))
    world.elect()
    assert world.lead("t").leader == 0
    data = json.dumps({"version": 1, "partitions": {"0": [0]}}).encode()
    world.tree.do(Set(znodes.topic_path("broken"), data))
    world.run(events.TopicsWritten(["broken"]))
    assert world.lead("broken").leader == 0


def test_state_that_a_predecessor_wrote_is_taken_as_it_is() -> None:
    world = World(0, 1)
    world.elect()
    world.write_topic("t", (0, 1))
    data = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":7,"isr":[1]}'
    for path, content in (
        (znodes.partitions_path("t"), b""),
        (znodes.partition_path("t", 0), b""),
        (znodes.state_path("t", 0), data),
    ):
        world.tree.do(Create(path, content))
    world.run(events.TopicsChanged())
    assert (world.lead("t").leader, world.lead("t").leader_epoch) == (1, 7)


def test_leader_dies_and_an_in_sync_replica_leads() -> None:
    world = world_with((0, 1, 2), (1, 2, 0))
    gone(world, 0)
    assert (world.lead("t").leader, world.lead("t").isr, world.lead("t").leader_epoch) == (1, (1, 2), 1)
    assert (world.lead("t", 1).leader, world.lead("t", 1).isr, world.lead("t", 1).leader_epoch) == (1, (1, 2), 1)
    assert world.metadata(1) == {("t", 0): 1, ("t", 1): 1}
    assert all(broker != 0 for broker, _ in world.sent)


def test_isr_of_two_loses_one_then_the_other() -> None:
    world = world_with((0, 1))
    gone(world, 0)
    assert (world.lead("t").leader, world.lead("t").isr) == (1, (1,))
    gone(world, 1)
    assert (world.lead("t").leader, world.lead("t").isr) == (-1, (1,))
    back(world, 0)
    assert world.lead("t").leader == -1, "0 may lack what was committed"
    back(world, 1)
    assert (world.lead("t").leader, world.lead("t").isr) == (1, (1,))


def test_all_in_sync_replicas_gone_at_once_may_each_lead() -> None:
    world = world_with((0, 1))
    gone(world, 0, 1)
    assert (world.lead("t").leader, world.lead("t").isr) == (-1, (0, 1))
    back(world, 1)
    assert (world.lead("t").leader, world.lead("t").isr) == (1, (1,))


def test_unclean_election_where_the_topic_allows_it() -> None:
    world = world_with((0, 1), unclean_leader_election_enable="true")
    gone(world, 1)
    gone(world, 0)
    back(world, 1)
    assert (world.lead("t").leader, world.lead("t").isr) == (1, (1,))


def test_unclean_election_by_the_default_and_after_the_option_changes() -> None:
    world = world_with((0, 1))
    gone(world, 1)
    gone(world, 0)
    back(world, 1)
    assert world.lead("t").leader == -1
    world.tree.do(Create(znodes.topic_config_path("t"), znodes.encode_configs(UNCLEAN)))
    world.run(events.UncleanAllowed("t"))
    assert world.lead("t").leader == 1


def test_broker_that_comes_learns_who_is_there_before_it_learns_whom_to_follow() -> None:
    world = world_with((1, 0), (0, 1))
    gone(world, 0)
    world.sent.clear()
    back(world, 0)
    told = [request for broker, request in world.sent if broker == 0]
    assert isinstance(told[0], UpdateMetadataRequest)
    assert sorted(one.id for one in told[0].live_brokers) == [0, 1, 2]
    assert isinstance(told[1], LeaderAndIsrRequest)


def test_restarted_broker_is_gone_and_back_in_one() -> None:
    world = world_with((0, 1))
    epoch = world.broker_epoch(0)
    world.unregister(0)
    world.register(0)
    world.run(events.BrokersChanged())
    assert world.broker_epoch(0) != epoch
    assert (world.lead("t").leader, world.lead("t").isr) == (1, (1,))
    requests = [request for broker, request in world.take_sent(LeaderAndIsrRequest) if broker == 0]
    assert requests[-1].broker_epoch == world.broker_epoch(0)


def test_broker_that_is_back_hears_of_the_others_before_it_is_to_follow_them() -> None:
    world = world_with((0, 1))
    gone(world, 1)
    world.sent.clear()
    back(world, 1)
    told = [request for broker, request in world.sent if broker == 1]
    assert isinstance(told[0], UpdateMetadataRequest)
    assert [one.id for one in told[0].live_brokers] == [0, 2, 1]
    assert isinstance(told[1], LeaderAndIsrRequest)


def test_new_broker_learns_everything_and_takes_nothing() -> None:
    world = world_with((0, 1), (1, 0))
    before = world.leads()
    back(world, 9)
    assert world.leads() == before
    assert world.metadata(9) == {("t", 0): 0, ("t", 1): 1}
    assert world.metadata(0) == {}
    assert [broker for broker, _ in world.take_sent(LeaderAndIsrRequest)] == []


def test_controlled_shutdown_moves_leaders_and_leaves_the_isr() -> None:
    world = world_with((0, 1), (1, 0), (0,))
    remaining = world.run(events.Shutdown(0, world.broker_epoch(0)))
    assert remaining == []
    assert (world.lead("t").leader, world.lead("t").isr) == (1, (1,))
    assert (world.lead("t", 1).leader, world.lead("t", 1).isr) == (1, (1,))
    assert world.lead("t", 2).leader == 0
    stopped = world.take_sent(StopReplicaRequest)
    assert {broker for broker, _ in stopped} == {0}


def test_controlled_shutdown_says_what_nobody_else_can_lead() -> None:
    world = world_with((0, 1))
    gone(world, 1)
    assert world.run(events.Shutdown(0, -1)) == [("t", 0)]
    assert world.lead("t").leader == 0
    with pytest.raises(BrokerError) as caught:
        world.run(events.Shutdown(0, 1))
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(BrokerError) as caught:
        world.run(events.Shutdown(7, 1))
    assert caught.value.code == ErrorCode.BROKER_NOT_AVAILABLE


def test_stopping_broker_is_not_let_back_into_the_isr() -> None:
    world = world_with((0, 1))
    world.run(events.Shutdown(1, -1))
    assert world.lead("t").isr == (0,)
    assert world.propose("t", 0, (0, 1)) == ErrorCode.INELIGIBLE_REPLICA


def test_topic_is_deleted_in_steps() -> None:
    world = world_with((0, 1), (1, 0))
    world.tree.do(Create(f"{znodes.DELETED_TOPICS}/t"))
    world.run(events.DeletionsAsked())
    assert world.metadata(2) == {("t", 0): -2, ("t", 1): -2}
    stops = world.take_sent(StopReplicaRequest)
    to_first = [
        [(one.delete_partition, one.leader_epoch) for topic in request.topic_states for one in topic.partition_states]
        for broker, request in stops
        if broker == 0
    ]
    assert to_first == [[(False, -2), (False, -2)], [(True, -2), (True, -2)]]
    assert znodes.topic_path("t") in world.tree.nodes, "not before the replicas are deleted"
    world.settle()
    assert world.tree.children(znodes.TOPICS) == []
    assert world.tree.children(znodes.DELETED_TOPICS) == []
    assert "t" not in world.watched


def test_deleted_topic_waits_for_a_broker_that_is_down() -> None:
    world = world_with((0, 1))
    gone(world, 1)
    world.tree.do(Create(f"{znodes.DELETED_TOPICS}/t"))
    world.run(events.DeletionsAsked())
    world.settle()
    assert znodes.topic_path("t") in world.tree.nodes
    back(world, 1)
    assert world.tree.children(znodes.TOPICS) == []


def test_deleted_topic_does_not_forget_a_broker_that_is_back_before_the_others_have_answered() -> None:
    world = world_with((0, 1))
    gone(world, 1)
    world.tree.do(Create(f"{znodes.DELETED_TOPICS}/t"))
    world.run(events.DeletionsAsked())
    world.register(1)
    world.run(events.BrokersChanged())  # 0 has not answered yet
    world.settle()
    assert world.tree.children(znodes.TOPICS) == []


def test_topic_that_moves_is_deleted_when_it_has_moved() -> None:
    world = world_with((0, 1))
    world.run(events.MovePartitions({("t", 0): (2, 1)}, True))
    world.settle()
    world.tree.do(Create(f"{znodes.DELETED_TOPICS}/t"))
    world.run(events.DeletionsAsked())
    world.settle()
    assert znodes.topic_path("t") in world.tree.nodes
    assert world.propose("t", 0, (0, 1, 2)) == ErrorCode.NONE
    world.settle()
    assert world.tree.children(znodes.TOPICS) == []


def test_deletion_of_what_is_not_there_or_not_allowed_is_struck_off() -> None:
    world = world_with((0, 1))
    world.tree.do(Create(f"{znodes.DELETED_TOPICS}/other"))
    world.run(events.DeletionsAsked())
    assert world.tree.children(znodes.DELETED_TOPICS) == []
    assert world.machine is not None
    world.machine.configure(ControlSettings(deletion=False))
    world.tree.do(Create(f"{znodes.DELETED_TOPICS}/t"))
    world.run(events.DeletionsAsked())
    assert world.tree.children(znodes.DELETED_TOPICS) == []
    assert world.lead("t").leader == 0


def test_topic_that_goes_does_not_grow() -> None:
    world = world_with((0, 1))
    gone(world, 1)
    world.tree.do(Create(f"{znodes.DELETED_TOPICS}/t"))
    world.run(events.DeletionsAsked())
    data = json.dumps({"version": 1, "partitions": {"0": [0, 1], "1": [0]}}).encode()
    world.tree.do(Set(znodes.topic_path("t"), data))
    world.run(events.TopicsWritten(["t"]))
    assert ("t", 1) not in world.leads()


def test_alter_partition_is_fenced_in_every_way() -> None:
    world = world_with((0, 1, 2))
    gone(world, 2)
    assert world.propose("t", 0, (0,)) == ErrorCode.NONE
    version = world.lead("t").version
    assert world.propose("t", 0, (0, 1), partition_epoch=version - 1) == ErrorCode.INVALID_UPDATE_VERSION
    assert world.propose("t", 0, (0, 1), partition_epoch=version + 1) == ErrorCode.NOT_CONTROLLER
    assert world.propose("t", 0, (0, 1), leader_epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
    assert world.propose("t", 0, (0, 1), leader_epoch=9) == ErrorCode.NOT_CONTROLLER
    assert world.propose("t", 0, (0, 2)) == ErrorCode.INELIGIBLE_REPLICA
    assert world.propose("t", 0, (0, 1), epochs={1: 1}) == ErrorCode.INELIGIBLE_REPLICA
    assert world.propose("t", 0, (0, 1), broker_epoch=1) == ErrorCode.STALE_BROKER_EPOCH
    assert world.propose("t", 0, (0, 1), topic_id=bytes(15) + b"x") == ErrorCode.UNKNOWN_TOPIC_ID
    assert world.propose("t", 0, (0, 9)) == ErrorCode.INVALID_REQUEST
    assert world.propose("t", 0, (1,)) == ErrorCode.INVALID_REQUEST
    assert world.propose("t", 0, (0, 1), sender=1) == ErrorCode.INVALID_REQUEST
    assert world.lead("t").version == version
    assert world.propose("t", 0, (0, 1), epochs={1: world.broker_epoch(1)}) == ErrorCode.NONE
    assert (world.lead("t").isr, world.lead("t").leader_epoch) == ((0, 1), 1)
    assert world.metadata(1) == {("t", 0): 0}


@pytest.mark.parametrize(("version", "refusal"), [(0, "OPERATION_NOT_ATTEMPTED"), (2, "INELIGIBLE_REPLICA")])
def test_older_leaders_propose_by_name_and_without_epochs(version: int, refusal: str) -> None:
    world = world_with((0, 1, 2))
    gone(world, 2)
    assert world.propose("t", 0, (0, 2), version=version) == ErrorCode[refusal]
    assert world.propose("t", 0, (0,), version=version) == ErrorCode.NONE
    assert world.lead("t").isr == (0,)
    assert world.propose("t", 0, (0, 1), version=version) == ErrorCode.NONE


def test_alter_partition_that_is_so_already_is_agreed_to() -> None:
    world = world_with((0, 1))
    response = world.alter("t", 0, (1, 0))
    assert response.topics[0].partitions[0].partition_epoch == world.lead("t").version == 0


def test_alter_partition_whose_write_got_no_answer() -> None:
    world = world_with((0, 1))
    lost = iter([True, False, False])
    world.unsure = lambda: next(lost)
    assert world.propose("t", 0, (0,)) == ErrorCode.NONE
    assert world.lead("t").isr == (0,)


def test_state_that_an_old_leader_wrote_is_read_again() -> None:
    world = world_with((0, 1, 2))
    data = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0,2]}'
    world.tree.do(Set(znodes.state_path("t", 0), data))
    gone(world, 0)
    assert (world.lead("t").leader, world.lead("t").isr) == (2, (2,))


def test_notified_states_are_told_and_the_notice_removed() -> None:
    world = world_with((0, 1, 2))
    data = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0,2]}'
    notice = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"no","partition":5}]}'
    world.tree.do(Set(znodes.state_path("t", 0), data))
    world.tree.do(Create(f"{znodes.ISR_CHANGES}/isr_change_0000000000", notice))
    world.run(events.InSyncNotified())
    request = world.sent[-1][1]
    assert request.topic_states[0].partition_states[0].isr == [0, 2]
    assert world.tree.children(znodes.ISR_CHANGES) == []


def test_preferred_leader_comes_back_when_asked() -> None:
    world = world_with((0, 1), (1, 0))
    gone(world, 0)
    back(world, 0)
    assert world.run(events.Elect([("t", 0)], events.PREFERRED))[("t", 0)].code == (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    assert world.propose("t", 0, (1, 0)) == ErrorCode.NONE
    assert world.run(events.Elect(None, events.PREFERRED)) == {("t", 0): None}
    assert world.lead("t").leader == 0
    codes = world.run(events.Elect([("t", 0), ("t", 5)], events.PREFERRED))
    assert [error.code for error in codes.values()] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    with pytest.raises(BrokerError):
        world.run(events.Elect([("t", 0)], 7))


def test_preferred_leader_asked_for_by_an_old_tool() -> None:
    world = world_with((0, 1))
    gone(world, 0)
    back(world, 0)
    world.propose("t", 0, (1, 0))
    world.tree.do(Create(znodes.PREFERRED_ELECTION, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'))
    world.run(events.PreferredAsked())
    assert world.lead("t").leader == 0
    assert znodes.PREFERRED_ELECTION not in world.tree.nodes


def test_unclean_election_when_asked() -> None:
    world = world_with((0, 1))
    gone(world, 1)
    assert world.run(events.Elect([("t", 0)], events.UNCLEAN))[("t", 0)].code == ErrorCode.ELECTION_NOT_NEEDED
    gone(world, 0)
    assert world.run(events.Elect([("t", 0)], events.UNCLEAN))[("t", 0)].code == (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    )
    back(world, 1)
    assert world.run(events.Elect([("t", 0)], events.UNCLEAN)) == {("t", 0): None}
    assert (world.lead("t").leader, world.lead("t").isr) == (1, (1,))


def test_balance_is_restored_beyond_the_limit_only() -> None:
    world = world_with(*[(0, 1)] * 10)
    gone(world, 0)
    back(world, 0)
    for index in range(10):
        world.propose("t", index, (1, 0))
    world.run(events.CheckBalance())
    assert {lead.leader for lead in world.leads().values()} == {0}
    world.run(events.Elect([("t", 0)], events.PREFERRED))
    gone(world, 0)
    back(world, 0)
    world.propose("t", 0, (1, 0))
    assert world.machine is not None
    world.machine.configure(ControlSettings(imbalance=100))
    world.run(events.CheckBalance())
    assert world.lead("t").leader == 1


def test_failed_folder_takes_replicas_offline() -> None:
    world = world_with((0, 1), (0, 1))
    world.failed_folders[0] = {("t", 0)}
    world.tree.do(Create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_0", b'{"version":1,"broker":0,"event":1}'))
    world.run(events.FoldersNotified())
    world.settle()
    assert (world.lead("t").leader, world.lead("t").isr) == (1, (1,))
    assert world.lead("t", 1).leader == 0
    assert world.tree.children(znodes.LOG_DIR_EVENTS) == []
    states = [
        state
        for _, request in world.sent
        if isinstance(request, UpdateMetadataRequest)
        for topic in request.topic_states
        for state in topic.partition_states
        if state.partition_index == 0
    ]
    assert states[-1].offline_replicas == [0]


def test_producer_ids_are_given_once() -> None:
    world = world_with((0, 1))
    epoch = world.broker_epoch(1)
    assert world.run(events.TakeProducerIds(1, epoch)) == (0, 1000)
    assert world.run(events.TakeProducerIds(1, epoch)) == (1000, 1000)
    with pytest.raises(BrokerError):
        world.run(events.TakeProducerIds(1, 0))
    lost = iter([True, False])
    world.unsure = lambda: next(lost)
    assert world.run(events.TakeProducerIds(1, epoch)) == (3000, 1000), "a block of which no answer came is skipped"


def test_deposed_controller_cannot_write() -> None:
    world = world_with((0, 1))
    world.tree.do(Set(znodes.CONTROLLER_EPOCH, b"99"))
    world.unregister(0)
    before = world.leads()
    with pytest.raises(Deposed):
        world.run(events.BrokersChanged())
    assert world.leads() == before


def test_taking_office_tells_every_broker_everything() -> None:
    world = world_with((0, 1), (1, 2))
    world.elect()
    for broker in (0, 1, 2):
        assert world.metadata(broker) == {("t", 0): 0, ("t", 1): 1}
    first = [request for broker, request in world.sent if broker == 0]
    assert isinstance(first[0], UpdateMetadataRequest)
    assert [one.id for one in first[0].live_brokers] == [0, 1, 2]
    assert not first[0].topic_states
    assert isinstance(first[1], LeaderAndIsrRequest)
    assert first[1].controller_epoch == 2


def test_taking_office_repairs_what_happened_meanwhile() -> None:
    world = world_with((0, 1), (1, 2))
    world.unregister(0)
    world.write_topic("u", (1,))
    world.tree.do(Create(f"{znodes.ISR_CHANGES}/isr_change_0000000000", b"?"))
    world.elect()
    assert world.lead("t").leader == 1
    assert world.lead("u").leader == 1
    assert world.tree.children(znodes.ISR_CHANGES) == []


def test_topic_removed_by_hand_is_forgotten() -> None:
    world = world_with((0,))
    for path in (
        znodes.state_path("t", 0),
        znodes.partition_path("t", 0),
        znodes.partitions_path("t"),
        znodes.topic_path("t"),
    ):
        world.tree.do(Delete(path))
    world.run(events.TopicsChanged())
    assert world.machine is not None
    assert not world.machine.memory.topics
    assert not world.machine.memory.leads
    world.write_topic("t", (0,))
    world.run(events.TopicsChanged())
    assert world.lead("t").leader_epoch == 0


def test_topic_made_again_behind_our_back_starts_from_nothing() -> None:
    world = world_with((0, 1))
    world.run(events.Shutdown(0, -1))
    for path in (
        znodes.state_path("t", 0),
        znodes.partition_path("t", 0),
        znodes.partitions_path("t"),
        znodes.topic_path("t"),
    ):
        world.tree.do(Delete(path))
    world.write_topic("t", (1,))
    world.run(events.TopicsWritten(["t"]))
    assert world.lead("t").leader == 1
    assert world.lead("t").leader_epoch == 0


@pytest.mark.parametrize(
    ("release", "versions"),
    [
        ("2.3", ControlVersions(2, 5, 1)),
        ("2.8-IV1", ControlVersions(5, 7, 3)),
        ("3.9-IV0", ControlVersions(7, 8, 4)),
        ("0.8.2", ControlVersions(0, 0, 0)),
        ("3.3", ControlVersions(6, 7, 3)),
    ],
)
def test_versions_follow_the_release(release: str, versions: ControlVersions) -> None:
    assert versions_of(release) == versions


@pytest.mark.parametrize("release", ["0.8.2", "0.10.2", "2.3", "2.5", "2.8"])
def test_older_releases_are_told_and_answer_the_same(release: str) -> None:
    world = World(0, 1, settings=ControlSettings(versions=versions_of(release)))
    world.write_topic("t", (0, 1))
    world.elect()
    request = next(one for broker, one in world.sent if isinstance(one, LeaderAndIsrRequest))
    assert [state.leader for state in request.ungrouped_partition_states] or request.topic_states
    world.tree.do(Create(f"{znodes.DELETED_TOPICS}/t"))
    world.run(events.DeletionsAsked())
    world.settle()
    assert world.tree.children(znodes.TOPICS) == []


def states_told(world: World) -> int:
    """How many partition states were sent to brokers in total."""
    requests = [request for _, request in world.sent if not isinstance(request, StopReplicaRequest)]
    return sum(len(topic.partition_states) for request in requests for topic in request.topic_states)


@pytest.mark.parametrize("others", [3, 300])
def test_event_costs_what_it_changes(others: int) -> None:
    """However many topics exist: only a created, altered or newly led topic is read, written and sent."""
    world = World(0, 1, 2)
    for number in range(others):
        world.write_topic(f"other{number}", (0, 1))
    world.write_topic("t", (2, 1))
    world.elect()
    costs = []
    for change in ("isr", "made", "death", "return", "deleted"):
        world.sent.clear()
        world.tree.written.clear()
        effects = world.effects
        if change == "isr":
            world.propose("t", 0, (2,))
            world.propose("t", 0, (2, 1))
        elif change == "made":
            world.write_topic("new", (2, 0))
            world.tree.written.clear()
            world.run(events.TopicsChanged())
        elif change == "deleted":
            world.tree.do(Create(znodes.deleted_topic_path("new")))
            world.run(events.DeletionsAsked())
            world.answers = [one for one in world.answers if one.broker in (0, 2)]  # type: ignore[union-attr]
        elif change == "death":
            world.unregister(2)
            world.run(events.BrokersChanged())
        else:
            world.register(2)
            world.run(events.BrokersChanged())
            world.sent = [
                (broker, one) for broker, one in world.sent if broker != 2
            ]  # a joining broker gets everything
        costs.append((change, world.effects - effects, len(world.tree.written), states_told(world)))
    assert all(effects < 25 and written < 12 and told < 20 for _, effects, written, told in costs), costs
