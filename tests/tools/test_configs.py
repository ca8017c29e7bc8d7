from collections.abc import Callable
from typing import Any

from ottla.embed import BrokerProcess, BrokerThread
from ottla.pytest_plugin import Namespace

Run = Callable[..., Any]


def test_a_topic_option_is_set_shown_and_taken_back(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic)
    assert run("configs", "set", "--topic", topic, "retention.ms=5000", "cleanup.policy=compact,delete").lines == [
        "set retention.ms = 5000",
        "set cleanup.policy = compact,delete",
    ]
    shown = {row["name"]: row for row in run("configs", "describe", "--topic", topic, "--json").document}
    assert shown["retention.ms"] == {
        "name": "retention.ms",
        "value": "5000",
        "source": "dynamic topic",
        "read_only": False,
    }
    assert shown["cleanup.policy"]["value"] == "compact,delete"

    assert run("configs", "delete", "--topic", topic, "retention.ms", "--json").document == {
        "deleted": ["retention.ms"]
    }
    everything = {row["name"]: row for row in run("configs", "describe", "--topic", topic, "--all", "--json").document}
    assert everything["retention.ms"]["value"] == "604800000"
    assert everything["retention.ms"]["source"] == "default"
    assert everything["cleanup.policy"]["value"] == "compact,delete", "the others stay"


def test_a_broker_option_is_changed_while_it_runs(run: Run, ottla_broker: BrokerProcess | BrokerThread) -> None:
    broker = str(ottla_broker.node_id)
    run("configs", "set", "--broker", broker, "log.retention.ms=7000000")
    shown = {row["name"]: row for row in run("configs", "describe", "--broker", broker, "--json").document}
    assert shown["log.retention.ms"]["value"] == "7000000"
    assert shown["log.retention.ms"]["source"] == "dynamic broker"
    run("configs", "delete", "--broker", broker, "log.retention.ms")
    shown = {row["name"]: row for row in run("configs", "describe", "--broker", broker, "--json").document}
    assert "log.retention.ms" not in shown


def test_people_get_a_table(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic, "--config", "retention.ms=5000")
    header, _, *rows = run("configs", "describe", "--topic", topic).lines
    assert header.split() == ["name", "value", "source", "read-only"]
    assert ["retention.ms", "5000", "dynamic", "topic", "no"] in [row.split() for row in rows]


def test_a_name_or_value_that_makes_no_sense_is_refused_by_name(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic)
    assert "retention.mss" in run("configs", "set", "--topic", topic, "retention.mss=1", code=1).err
    assert "retention.ms" in run("configs", "set", "--topic", topic, "retention.ms=soon", code=1).err
    run("configs", "set", "--topic", topic, "retention.ms", code=2)


def test_either_a_topic_or_a_broker_is_meant(run: Run) -> None:
    assert "either --topic or --broker" in run("configs", "describe", code=2).err
    run("configs", "describe", "--topic", "a", "--broker", "1", code=2)


def test_a_broker_that_is_not_there_is_named(run: Run, ottla_broker: BrokerProcess | BrokerThread) -> None:
    """It was waited for, half a minute, and then the broker that does answer was blamed."""
    for command in (("describe",), ("set", "background.threads=2"), ("delete", "background.threads")):
        failed = run("configs", *command, "--broker", "99", code=1)
        assert failed.err == f"ottla: there is no broker 99 in the cluster, only {ottla_broker.node_id}\n"
