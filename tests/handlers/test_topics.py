"""Topics: what test_judged.py does not cover."""

from pathlib import Path

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)


def create(wired: Wired, *names: str, partitions: int = 1, version: int = 7) -> dict[str, bytes]:
    wishes = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    response = wired.ask(CreateTopicsRequest(topics=wishes, timeout_ms=5000), version)
    assert {result.error_code for result in response.topics} == {0}
    return {result.name: result.topic_id for result in response.topics}


def test_an_answer_means_that_the_logs_are_there(wired: Wired, tmp_path: Path) -> None:
    create(wired, "t", partitions=3)
    assert sorted(path.name for path in tmp_path.glob("t-*")) == ["t-0", "t-1", "t-2"]
    wish = CreatePartitionsTopic(name="t", count=5, assignments=None)
    wired.ask(CreatePartitionsRequest(topics=[wish], timeout_ms=5000, validate_only=False), 3)
    assert sorted(path.name for path in tmp_path.glob("t-*")) == [f"t-{index}" for index in range(5)]
    wired.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
    assert not [path.name for path in tmp_path.glob("t-*") if not path.name.endswith("-delete")]


@pytest.mark.parametrize("version", range(8))
def test_topics_are_made_in_every_version(wired: Wired, version: int) -> None:
    made = create(wired, "a", "b", version=version)
    assert made.keys() == {"a", "b"}
    assert all(any(topic_id) == (version >= 7) for topic_id in made.values())


@pytest.mark.parametrize("version", range(7))
def test_topics_are_deleted_in_every_version(wired: Wired, version: int) -> None:
    ids = create(wired, "a", "b")
    states = [DeleteTopicState(name="a", topic_id=bytes(16)), DeleteTopicState(name=None, topic_id=ids["b"])]
    names = ["a", "b"]
    request = DeleteTopicsRequest(
        topics=states if version >= 6 else [], topic_names=[] if version >= 6 else names, timeout_ms=5000
    )
    response = wired.ask(request, version)
    assert {(result.name, result.error_code) for result in response.responses} == {("a", 0), ("b", 0)}
    if version >= 6:
        assert {result.topic_id for result in response.responses} == set(ids.values())
    create(wired, "a", "b")


def test_a_name_and_its_id_in_one_request_delete_nothing(wired: Wired) -> None:
    ids = create(wired, "a")
    states = [DeleteTopicState(name="a", topic_id=bytes(16)), DeleteTopicState(name=None, topic_id=ids["a"])]
    response = wired.ask(DeleteTopicsRequest(topics=states, timeout_ms=5000), 6)
    assert [(result.name, result.error_code) for result in response.responses] == [("a", ErrorCode.INVALID_REQUEST)]


@pytest.mark.parametrize(("version", "code"), [(1, "INVALID_REQUEST"), (6, "TOPIC_DELETION_DISABLED")])
def test_deletion_may_be_disabled(tmp_path: Path, version: int, code: str) -> None:
    options = {"delete.topic.enable": "false"}
    with BrokerThread(data=tmp_path, options=options) as broker, Wired(port_of(broker)) as wired:
        create(wired, "a")
        state = DeleteTopicState(name="a", topic_id=bytes(16))
        response = wired.ask(DeleteTopicsRequest(topics=[state], topic_names=["a"], timeout_ms=5000), version)
        assert [(result.name, result.error_code) for result in response.responses] == [("a", ErrorCode[code])]


def test_all_topics_of_a_request_share_its_bound(wired: Wired) -> None:
    wishes = [
        CreatableTopic(name=name, num_partitions=4000, replication_factor=1, assignments=[], configs=[])
        for name in ("a", "b", "c")
    ]
    response = wired.ask(CreateTopicsRequest(topics=wishes, timeout_ms=5000, validate_only=True), 7)
    codes = [result.error_code for result in response.topics]
    assert codes == [ErrorCode.POLICY_VIOLATION] * 3, "the request as a whole, as Kafka 4.3.1 answers"


def test_topics_survive_a_restart_with_their_ids(tmp_path: Path) -> None:
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        ids = create(wired, "a")
    with BrokerThread(data=tmp_path) as broker, Wired(port_of(broker)) as wired:
        state = DeleteTopicState(name=None, topic_id=ids["a"])
        response = wired.ask(DeleteTopicsRequest(topics=[state], timeout_ms=5000), 6)
        assert [(result.name, result.error_code) for result in response.responses] == [("a", 0)]
