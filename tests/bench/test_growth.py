"""Each axis grows a little on Ottla and gives sane numbers, and the page is written; how flat is for the real run."""

from __future__ import annotations

import json
import math
import socketserver
import struct
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench import growth
from bench.brokers import Broker, Ottla
from bench.circuit import Circuit
from bench.growing import log_size, partitions
from bench.growing.axis import Axis, Effort, Load
from bench.wire import BenchError, Connection, lookup, lookup_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.wire import Batch

pytestmark = pytest.mark.xdist_group("bench")

LITTLE = Effort(requests=20, pairs=2, warm_requests=20, rest_s=0.05, rests=1)


@pytest.mark.parametrize("axis", growth.AXES.values(), ids=lambda axis: axis.name)
def test_an_axis_gives_numbers_at_each_size(axis: Axis) -> None:
    sizes = (30, 60) if axis is log_size.AXIS else (1, 3, 12)
    points = growth.grown(replace(axis, sizes=sizes), ["ottla"], LITTLE)
    assert points.keys() == axis.measures.keys()
    for sides in points.values():
        assert list(sides["ottla"]) == list(sizes)
        assert all(math.isfinite(value) and value >= 0 for values in sides["ottla"].values() for value in values)
        assert len({len(values) for values in sides["ottla"].values()}) == 1


def test_a_log_has_its_size_and_its_times() -> None:
    """A bulk of large batches and a tail of small ones, and a timestamp that leads to its batch."""
    with Ottla().start() as broker:
        load = log_size.LogSize(broker, LITTLE)
        load.grow(120)
        (copy,) = load.copies
        stored = sum(file.stat().st_size for file in (broker.folder / "data" / f"{copy.topic}-0").glob("*.log"))
        assert stored == copy.bytes == pytest.approx(120e6, rel=0.02)
        assert 95e6 < copy.tail_batches * len(log_size.SMALL.data) <= 102e6
        error, offset = lookup(load.lanes[0].call(lookup_frame(copy.topic, 0, copy.now_ms + 1)), copy.topic)
        assert (error, offset) == (0, -1)
        load.drop()
        assert not list((broker.folder / "data").glob("log-*"))
        load.close()


def test_an_error_ends_the_measurement() -> None:
    with Ottla().start() as broker, broker.connect() as connection:
        load = partitions.Partitions(broker, LITTLE)
        load.grow(1)
        connection.delete_topic(load.partitions[0][0])
        with pytest.raises(BenchError, match="error 3"):
            load.sample(1)
        load.close()


class Echo(socketserver.BaseRequestHandler):
    """Sends back what comes, and notes from whom."""

    seen: ClassVar[list[int]] = []

    def handle(self) -> None:
        while data := self.request.recv(100):
            self.seen.append(self.client_address[1])
            self.request.sendall(data)


@pytest.fixture
def echo() -> Iterator[int]:
    Echo.seen.clear()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_requests_go_round_all_connections(echo: int) -> None:
    answer = struct.pack(">iih", 6, 1, 0)
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(echo)) for _ in range(3)]
        ports = [connection.socket.getsockname()[1] for connection in connections]
        circuit = Circuit(connections, repeat(answer), lambda data: struct.unpack(">h", data)[0], lanes=1)
        circuit.run(4)
        assert Echo.seen == [*ports, ports[0]]
        circuit.run(1)
        assert Echo.seen[-1] == ports[1]


def test_as_many_requests_are_sent_as_wanted(echo: int) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(echo)) for _ in range(3)]
        Circuit(connections, repeat(struct.pack(">iih", 6, 1, 0)), lambda _: 0, lanes=10).run(8)
        assert len(Echo.seen) == 8
        assert len(set(Echo.seen)) == 3
        with pytest.raises(BenchError, match="error 7"):
            Circuit(connections, repeat(struct.pack(">iih", 6, 1, 0)), lambda _: 7, lanes=10).run(1)


def figures(kafka: float, ottla: float) -> dict[str, dict[str, dict[str, list[float]]]]:
    """What an axis found: as given at 10,000 and 1 at the smallest size."""

    def at(value: float) -> dict[str, list[float]]:
        return {"1": [1.0, 1.0, 1.0], "10000": [value, value, value]}

    return {name: {"kafka": at(kafka), "ottla": at(ottla)} for name in partitions.AXIS.measures}


def test_the_page_has_pictures_figures_and_verdicts(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- growth: begin -->\nyesterday\n<!-- growth: end -->\nafter\n")
    report = {"partitions": {"conditions": "On a day.", "measures": figures(1.2, 3.0)}}
    growth.write(tmp_path, report)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "yesterday" not in text
    assert "](growth-partitions.svg)" in text
    assert (tmp_path / "growth-partitions.svg").read_text().startswith("<svg")
    assert "produce not flat (3 times as much, Kafka's 1.2)" in text
    assert "| 10,000 | 1.20 (1.20 to 1.20) | 3.00 (3.00 to 3.00) |" in text
    assert json.loads((tmp_path / "growth.json").read_text()) == report
    assert "produce flat (1.4 times as much, Kafka's 1.2)" in growth.verdict(partitions.AXIS, figures(1.2, 1.4))


def test_the_largest_log_is_an_option() -> None:
    assert growth.limited(log_size.AXIS, 50).sizes == log_size.AXIS.sizes
    assert growth.limited(log_size.AXIS, 2).sizes == (1, 10, 100, 1000, 2000)
    assert growth.limited(partitions.AXIS, 2) is partitions.AXIS


class Side(Broker):
    """A broker that is only a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


def test_brokers_take_a_size_alone_that_the_disk_cannot_hold_twice(tmp_path: Path) -> None:
    loads = [Load(Side(tmp_path), LITTLE), Load(Side(tmp_path), LITTLE)]
    assert growth.companies(log_size.AXIS, 1, loads) == [loads]
    assert growth.companies(log_size.AXIS, 10**9, loads) == [[loads[0]], [loads[1]]]
    assert growth.companies(partitions.AXIS, 10**9, loads) == [loads]


def test_a_size_that_is_taken_alone_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two brokers, of which never both have a log."""
    together: list[int] = []
    fill = log_size.LogSize._fill

    def watched(load: log_size.LogSize, copy: log_size.Copy, one: Batch, count: int) -> None:
        fill(load, copy, one, count)
        together.append(len({other.broker for other in loads if other.copies}))

    loads: list[log_size.LogSize] = []

    def made(broker: Broker, effort: Effort) -> log_size.LogSize:
        loads.append(log_size.LogSize(broker, effort))
        return loads[-1]

    monkeypatch.setattr(log_size.LogSize, "_fill", watched)
    monkeypatch.setattr(growth, "ROOM", 0.0)
    axis = replace(log_size.AXIS, sizes=(40, 60), load=made)
    points = growth.grown(axis, ["ottla", "ottla"], LITTLE)
    assert set(together) == {1}
    assert [len(values) for values in points["append_us"]["ottla"].values()] == [2 * LITTLE.pairs] * 2
