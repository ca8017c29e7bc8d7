import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.embed import BrokerProcess

Run = Callable[..., Any]


def test_dump_shows_a_partition_without_a_broker(run: Run, tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path) as broker:
        run("produce", "t", "hello", "--key", "k", "--bootstrap", broker.bootstrap)
    shown = run("dump", str(tmp_path / "t-0"), "--records", "--verify").out
    assert "00000000000000000000.log" in shown
    assert "hello" in shown
    rows = [json.loads(line) for line in run("dump", str(tmp_path / "t-0"), "--json").lines]
    assert any("00000000000000000000.log" in str(row) for row in rows)


def test_dump_fails_when_a_file_is_damaged(run: Run, tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path) as broker:
        run("produce", "t", "hello", "--bootstrap", broker.bootstrap)
    segment = tmp_path / "t-0" / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    run("dump", str(segment), "--verify", code=1)


def test_serve_is_the_same_behind_the_help(run: Run) -> None:
    assert "--until-eof" in run("serve", "--help").out
