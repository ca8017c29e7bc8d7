import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ottla.embed import BrokerProcess, BrokerThread
from ottla.pytest_plugin import Namespace

Run = Callable[..., Any]


def filled(run: Run, topic: str) -> str:
    """Ten records with times 1000, 2000 ... 10000 and values 0 ... 9."""
    run(
        "produce", topic, "--json", text="\n".join(f'{{"value":"{n}","timestamp":{(n + 1) * 1000}}}' for n in range(10))
    )
    return topic


def test_reading_begins_where_it_is_told(run: Run, ottla_namespace: Namespace) -> None:
    topic = filled(run, ottla_namespace.topic())
    assert run("consume", topic).lines == list("0123456789")
    assert run("consume", topic, "--from", "7").lines == list("789")
    assert run("consume", topic, "--from", "-2").lines == list("89")
    assert run("consume", topic, "--from", "1970-01-01T00:00:05Z").lines == list("456789")
    assert run("consume", topic, "--from", "-1h").lines == [], "nothing is that young"
    assert run("consume", topic, "--from", "end").lines == []
    assert run("consume", topic, "--from", "700").lines == []
    assert run("consume", topic, "--from", "2", "--max", "3").lines == list("234")
    assert "expected beginning" in " ".join(run("consume", topic, "--from", "noon", code=2).err.split())


def test_partitions_can_be_chosen(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic, "--partitions", "3")
    for partition in "012":
        run("produce", topic, f"in {partition}", "--partition", partition)
    assert sorted(run("consume", topic).lines) == ["in 0", "in 1", "in 2"]
    assert run("consume", topic, "--partition", "1").lines == ["in 1"]
    assert "has no partition 7" in run("consume", topic, "--partition", "7", code=1).err


def test_the_form_of_a_line_can_be_chosen(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("produce", topic, "v", "--key", "k", "-H", "a=1", "-H", "b=2", "--timestamp", "9")
    assert run("consume", topic, "--keys").out == "k\tv\n"
    assert run("consume", topic, "--headers").out == "a=1,b=2\tv\n"
    assert run("consume", topic, "--format", "{partition}:{offset}@{timestamp} {key}={value}\\n").out == "0:0@9 k=v\n"
    run("consume", topic, "--format", "{colour}", code=2)


def test_an_empty_topic_ends_at_once(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic)
    assert run("consume", topic).out == ""


def test_a_missing_topic_is_an_error_and_stays_missing(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic("missing")
    assert "UNKNOWN_TOPIC_OR_PART" in run("consume", topic, code=1).err
    assert topic not in run("topics", "list").out


def test_following_waits_for_more(
    run: Run, ottla_namespace: Namespace, ottla_broker: BrokerProcess | BrokerThread
) -> None:
    topic = ottla_namespace.topic()
    run("produce", topic, "before")
    follower = subprocess.Popen(
        [sys.executable, "-m", "ottla", "consume", topic, "--follow", "--max", "2"],
        env={**os.environ, "OTTLA_BOOTSTRAP": ottla_broker.bootstrap},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout
    assert follower.stdout.readline() == "before\n"
    run("produce", topic, "after")
    assert follower.stdout.readline() == "after\n"
    assert follower.wait(30) == 0


def test_a_reader_that_has_seen_enough_is_no_error(
    run: Run, ottla_namespace: Namespace, ottla_broker: BrokerProcess | BrokerThread
) -> None:
    topic = ottla_namespace.topic()
    run("produce", topic, text="".join(f"{number:0>1000}\n" for number in range(2000)))
    consumer = subprocess.Popen(
        [sys.executable, "-m", "ottla", "consume", topic],
        env={**os.environ, "OTTLA_BOOTSTRAP": ottla_broker.bootstrap},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert consumer.stdout
    assert consumer.stderr
    assert len(consumer.stdout.readline()) == 1001
    consumer.stdout.close()
    assert consumer.wait(30) == 0
    assert consumer.stderr.read() == b""
    consumer.stderr.close()
