import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.pytest_plugin import Namespace

Run = Callable[..., Any]


def read(run: Run, topic: str) -> list[Any]:
    return [json.loads(line) for line in run("consume", topic, "--json").lines]


def test_arguments_are_records(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    sent = run("produce", topic, "one", "two", "--key", "k", "--header", "a=1", "--header", "b=", "--timestamp", "1234")
    assert sent.out == ""
    assert sent.err == f"ottla: 2 records to {topic}: partition 0 offset 0 to 1\n"
    assert read(run, topic) == [
        {
            "topic": topic,
            "partition": 0,
            "offset": offset,
            "timestamp": 1234,
            "key": "k",
            "value": value,
            "headers": [["a", "1"], ["b", ""]],
        }
        for offset, value in enumerate(("one", "two"))
    ]


def test_lines_of_standard_input_are_records_byte_for_byte(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("produce", topic, text=b"plain\n\nlatin \xe9\nno end of line")
    assert run("consume", topic).out.encode(errors="surrogateescape") == b"plain\n\nlatin \xe9\nno end of line\n"


def test_lines_of_a_file_are_records(run: Run, ottla_namespace: Namespace, tmp_path: Path) -> None:
    topic = ottla_namespace.topic()
    (tmp_path / "lines").write_text("k1:v1\nk2:v:2\n")
    run("produce", topic, "--file", str(tmp_path / "lines"), "--key-separator", ":")
    assert [(record["key"], record["value"]) for record in read(run, topic)] == [("k1", "v1"), ("k2", "v:2")]
    assert "lines2" in run("produce", topic, "--file", str(tmp_path / "lines2"), code=1).err


def test_a_line_without_separator_stops_the_command_and_keeps_what_came_before(
    run: Run, ottla_namespace: Namespace
) -> None:
    topic = ottla_namespace.topic()
    failed = run("produce", topic, "-K", ":", text="a:1\nb\nc:3\n", code=1).err
    assert failed.splitlines() == [
        f"ottla: 1 record to {topic}: partition 0 offset 0",
        "ottla: record 2: no ':' between key and value",
    ]
    assert [record["value"] for record in read(run, topic)] == ["1"]


def test_json_lines_say_everything_themselves(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic, "--partitions", "2")
    lines = [
        {"key": "k", "value": "v", "headers": [["h", "1"]], "partition": 1, "timestamp": 5000},
        {"key_base64": "/w==", "value": None, "partition": 1, "timestamp": 6000},
        {"value": {"a": 1}},
    ]
    sent = run("produce", topic, "--json", "--partition", "0", text="\n".join(json.dumps(line) for line in lines))
    assert sent.document == {
        "topic": topic,
        "records": 3,
        "refused": 0,
        "partitions": [{"partition": 0, "first": 0, "last": 0}, {"partition": 1, "first": 0, "last": 1}],
    }
    one, two = (record for record in read(run, topic) if record["partition"] == 1)
    assert (one["key"], one["value"], one["headers"], one["timestamp"]) == ("k", "v", [["h", "1"]], 5000)
    assert (two["key_base64"], two["value"], two["timestamp"]) == ("/w==", None, 6000)


def test_what_was_consumed_as_json_can_be_produced_again(run: Run, ottla_namespace: Namespace) -> None:
    first, second = ottla_namespace.topic("first"), ottla_namespace.topic("second")
    run("produce", first, "a", "b", "--key", "k", "-H", "h=1")
    run("produce", second, "--json", text=run("consume", first, "--json").out)
    assert [{**record, "topic": first} for record in read(run, second)] == read(run, first)


def test_a_json_line_that_is_no_record_is_named(run: Run, ottla_namespace: Namespace) -> None:
    assert (
        "record 2: unknown field x"
        in run("produce", ottla_namespace.topic(), "--json", text='{"value":"v"}\n{"x":1}\n', code=1).err
    )


def test_a_tombstone_has_no_value(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("produce", topic, "--key", "k", "--null-value")
    (record,) = read(run, topic)
    assert (record["key"], record["value"]) == ("k", None)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_codec_and_every_degree_of_care(
    run: Run, ottla_namespace: Namespace, compression: str, acks: str
) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic)
    run("produce", topic, "a" * 1000, "--compression", compression, "--acks", acks)
    assert run("consume", topic, "--follow", "--max", "1").out == "a" * 1000 + "\n"


def test_a_refused_record_fails_the_command(run: Run, ottla_namespace: Namespace) -> None:
    topic = ottla_namespace.topic()
    run("topics", "create", topic, "--config", "max.message.bytes=100")
    failed = run("produce", topic, "x" * 200, code=1)
    assert "MSG_SIZE_TOO_LARGE" in failed.err
    assert "1 of 1 records not accepted" in failed.err


def test_a_broker_that_hears_and_does_not_answer_is_given_up(run: Run) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        failed = run("produce", "t", "x", "--bootstrap", address, "--timeout", "1", code=1)
    assert f"nothing answers at {address}" in failed.err
    assert "is a broker running there?" in failed.err


def test_a_timestamp_that_is_none_is_refused(run: Run) -> None:
    assert "beginning" not in run("produce", "t", "x", "--timestamp", "noon", code=2).err


def test_a_transaction_is_seen_whole_or_not_at_all(run: Run, ottla_namespace: Namespace) -> None:
    topic, name = ottla_namespace.topic(), ottla_namespace.transaction()
    sent = run("produce", topic, "one", "two", "--transactional-id", name)
    assert sent.err == f"ottla: 2 records to {topic}: partition 0 offset 0 to 1\n"
    broken = run("produce", topic, "-K", ":", "--transactional-id", name, text="k:three\nfour\n", code=1)
    assert broken.err == "ottla: record 2: no ':' between key and value\n"
    assert run("consume", topic).lines == ["one", "two"]
    assert run("consume", topic, "--isolation", "read_uncommitted").lines == ["one", "two", "three"]
    (found,) = run("transactions", "describe", name, "--json").document
    assert found["state"] in ("CompleteAbort", "PrepareAbort")


def test_a_refused_record_takes_its_transaction_with_it(run: Run, ottla_namespace: Namespace) -> None:
    topic, name = ottla_namespace.topic(), ottla_namespace.transaction()
    run("topics", "create", topic, "--config", "max.message.bytes=200")
    failed = run("produce", topic, "small", "x" * 400, "--transactional-id", name, "-X", "linger.ms=0", code=1)
    assert "records not accepted" in failed.err
    assert run("consume", topic).out == ""


def test_a_transaction_wants_every_replica(run: Run) -> None:
    assert "acks" in run("produce", "t", "x", "--transactional-id", "x", "--acks", "1", code=1).err
