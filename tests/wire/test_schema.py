"""What a declaration gives: a keyword constructor, defaults, equality, a readable form; and all that at first use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from wire.samples import all_classes

from ottla.wire.codec import decode, encode
from ottla.wire.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, PartitionData, ReplicaState
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import ProduceRequest, TopicProduceData
from ottla.wire.schema import LAST, ZERO_UUID, at, fields, i32, message, spec, string


def test_the_constructor_takes_keywords_and_fills_in_defaults() -> None:
    partition = FetchPartition(partition=3, fetch_offset=70, partition_max_bytes=1 << 20)
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (3, 70, 1 << 20)
    assert (partition.current_leader_epoch, partition.replica_directory_id) == (-1, ZERO_UUID)


def test_a_field_without_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="fetch_offset"):
        FetchPartition(partition=3, partition_max_bytes=1)  # type: ignore[call-arg]


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(TypeError, match="topic_names"):
        MetadataRequest(topics=None, topic_names=[])  # type: ignore[call-arg]


def test_lists_are_not_shared_between_instances() -> None:
    first, second = (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]) for _ in range(2))
    first.forgotten_topics_data.append(None)  # type: ignore[arg-type]
    assert second.forgotten_topics_data == []


def test_a_struct_that_was_left_out_is_shared_and_cannot_be_changed() -> None:
    first, second = (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]) for _ in range(2))
    assert first.replica_state is second.replica_state
    assert isinstance(first.replica_state, ReplicaState)
    with pytest.raises(TypeError, match="assign a new one"):
        first.replica_state.replica_id = 1
    first.replica_state = ReplicaState(replica_id=1)
    assert second.replica_state.replica_id == -1


def test_equality_is_by_value_and_kind() -> None:
    assert EpochEndOffset(epoch=1) == EpochEndOffset(epoch=1, end_offset=-1)
    assert EpochEndOffset(epoch=1) != EpochEndOffset(epoch=2)
    other: object = ReplicaState()
    assert EpochEndOffset() != other
    left_out = PartitionData(partition_index=0, error_code=0, high_watermark=0).diverging_epoch
    assert left_out == EpochEndOffset()
    with pytest.raises(TypeError, match="unhashable"):
        hash(EpochEndOffset())


def test_the_readable_form_names_every_field() -> None:
    assert repr(EpochEndOffset(epoch=7)) == "EpochEndOffset(epoch=7, end_offset=-1)"
    left_out = PartitionData(partition_index=0, error_code=0, high_watermark=0).diverging_epoch
    assert repr(left_out) == "EpochEndOffset(epoch=-1, end_offset=-1)"


def test_a_decoded_message_has_the_fields_its_version_lacks() -> None:
    old = decode(ProduceRequest, 0, encode(ProduceRequest(acks=1, timeout_ms=2, topic_data=[]), 0))
    assert old.transactional_id is None
    topic = TopicProduceData(name="t", partition_data=[])
    new = decode(ProduceRequest, 13, encode(ProduceRequest(acks=1, timeout_ms=2, topic_data=[topic]), 13))
    assert (new.topic_data[0].name, new.topic_data[0].topic_id) == ("", ZERO_UUID)


def test_notes_of_a_class() -> None:
    noted = spec(ProduceRequest)
    assert (noted.name, noted.key, noted.versions, noted.flexible) == ("ProduceRequest", 0, (0, 13), 9)
    (topic_id, name) = fields(MetadataRequestTopic)
    assert (topic_id.since, topic_id.until, topic_id.nullable) == (10, LAST, None)
    assert [name.may_be_null(version) for version in (9, 10)] == [False, True]


def test_no_field_is_in_the_way_of_python() -> None:
    """A field must not hide what every object has."""
    for cls in all_classes():
        assert not {field.name for field in fields(cls)} & set(dir(object)), cls


def test_one_family_loads_alone() -> None:
    """A broker must not pay for the families it does not serve."""
    script = (
        "import sys, ottla.wire.apis, ottla.wire.frame, ottla.wire.messages.produce;"
        "print([name for name in sys.modules if name.startswith('ottla.wire.messages.')])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['ottla.wire.messages.produce']"


def test_threads_may_make_the_first_message_of_a_class_at_once() -> None:
    """A class is completed at its first use, and the console asks a cluster from several threads."""
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as threads:
            for _ in range(60):
                kind = first_used()
                together = threading.Barrier(6)

                def make(kind: Any = kind, together: threading.Barrier = together) -> Any:
                    together.wait()
                    return kind(name="a")

                made = [one.result() for one in [threads.submit(make) for _ in range(6)]]
                assert [(one.name, one.size, one.more) for one in made] == [("a", 7, None)] * 6
    finally:
        sys.setswitchinterval(switching)


def first_used() -> Any:
    @message(None, versions=(0, 3))
    class Fresh:
        name: string
        size: i32 = at(since=1, default=7)
        more: string | None = at(since=2, default=None)
        fifth: i32 = at(since=2, default=0)
        sixth: i32 = at(since=2, default=0)
        seventh: i32 = at(since=2, default=0)

    return Fresh
