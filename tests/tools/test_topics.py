from collections.abc import Callable
from typing import Any

from confluent_kafka import Uuid

from ottla.log.checkpoints import id_to_text
from ottla.pytest_plugin import Namespace
from ottla.tools.topics import spell_id

Run = Callable[..., Any]


def test_a_topic_is_created_listed_described_altered_and_deleted(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic("orders")
    assert (
        run("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=60000").out
        == f"created {topic}\n"
    )
    listed = {row["topic"]: row for row in run("topics", "list", "--json").document}
    assert listed[topic] == {"topic": topic, "partitions": 3, "replicas": 1, "under_replicated": 0}

    run(
        "topics", "alter", topic, "--partitions", "5", "--config", "segment.ms=70000", "--delete-config", "retention.ms"
    )
    run("produce", topic, "a", "b", "--partition", "4")
    (described,) = run("topics", "describe", topic, "--json").document
    assert described["topic"] == topic
    assert described["configs"] == {"segment.ms": "70000"}
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2, 3, 4]
    assert [partition["end"] for partition in described["partitions"]] == [0, 0, 0, 0, 2]
    node = described["partitions"][0]["leader"]
    assert all(partition["replicas"] == partition["isr"] == [node] for partition in described["partitions"])

    assert run("topics", "delete", topic).out == f"deleted {topic}\n"
    assert topic not in {row["topic"] for row in run("topics", "list", "--json").document}


def test_what_was_done_is_told_also_when_the_rest_is_refused(run: Run, ottla_namespace: Namespace) -> None:
    first, second = ottla_namespace.topic("first"), ottla_namespace.topic("second")
    run("topics", "create", first)
    created = run("topics", "create", first, second, code=1)
    assert created.out == f"created {second}\n"
    assert "TOPIC_ALREADY_EXISTS" in created.err
    deleted = run("topics", "delete", first, f"{first}-missing", second, code=1)
    assert sorted(deleted.out.splitlines()) == [f"deleted {first}", f"deleted {second}"]
    assert f"{first}-missing: " in deleted.err
    assert run("topics", "delete", first, code=1).out == ""


def test_an_id_is_spelled_as_in_kafkas_files() -> None:
    value = (b"\xff\xfb\xef" * 6)[:16]
    most, least = (int.from_bytes(part, signed=True) for part in (value[:8], value[8:]))
    assert spell_id(Uuid(most, least)) == id_to_text(value) == "__vv__vv__vv__vv__vv_w"


def test_people_get_tables(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic, "-p", "2")
    header, _, *rows = run("topics", "list").lines
    assert header.split() == ["topic", "partitions", "replicas", "under-replicated"]
    assert [topic, "2", "1", "0"] in [row.split() for row in rows]
    described = run("topics", "describe", topic).lines
    assert described[0].startswith(f"{topic}  id ")
    assert described[-1].split()[0] == "1", "the last partition"


def test_what_is_there_already_is_refused_unless_that_is_fine(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic)
    assert "TOPIC_ALREADY_EXISTS" in run("topics", "create", topic, code=1).err
    assert run("topics", "create", topic, "--if-not-exists", "--json").document == {"created": []}


def test_what_is_missing_is_refused_unless_that_is_fine(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic("missing")
    assert "UNKNOWN_TOPIC_OR_PART" in run("topics", "delete", topic, code=1).err
    assert "UNKNOWN_TOPIC_OR_PART" in run("topics", "describe", topic, code=1).err
    assert run("topics", "delete", topic, "--if-exists", "--json").document == {"deleted": []}


def test_one_refusal_among_several_fails_the_command_and_keeps_the_rest(run: Run, ottla_namespace: Namespace) -> None:
    good, bad = ottla_namespace.topic("good"), "no/such/name"
    assert bad in run("topics", "create", bad, good, code=1).err
    assert good in {row["topic"] for row in run("topics", "list", "--json").document}


def test_validation_creates_nothing(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    assert run("topics", "create", topic, "--validate-only").out == f"could create {topic}\n"
    assert topic not in {row["topic"] for row in run("topics", "list", "--json").document}


def test_replicas_can_be_placed_by_hand(run: Run, ottla_namespace: Namespace) -> None:
    first, second = ottla_namespace.topic("first"), ottla_namespace.topic("second")
    run("topics", "create", first)
    node = str(run("topics", "describe", first, "--json").document[0]["partitions"][0]["leader"])
    run("topics", "create", second, "--assign", node, "--assign", node)
    assert len(run("topics", "describe", second, "--json").document[0]["partitions"]) == 2
    run("topics", "create", second, "--assign", "one", code=2)
    run("topics", "create", second, "--assign", node, "--partitions", "1", code=2)


def test_an_alteration_must_alter_something(run: Run, ottla_namespace: Namespace) -> None:
    assert "nothing to alter" in run("topics", "alter", ottla_namespace.topic(), code=1).err
