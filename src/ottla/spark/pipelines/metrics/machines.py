"""Input for `metrics`: generated hosts, or measurements of this machine."""

import heapq
import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from ottla.spark.runner import Run, UsageError
from ottla.spark.runner.generating import Record

MADE_UP: Final = ("cpu", "memory", "latency_ms", "latency_ms", "latency_ms")


def records(topic: str, seed: int, hosts: int, start: datetime, tick_s: float = 1.0) -> Iterator[Record]:
    """Endless, in order of arrival: most at once, some late, a few so late that their window is final."""
    random = Random(seed)
    load = [random.uniform(20, 60) for _ in range(hosts)]
    trouble = [0] * hosts  # remaining ticks
    waiting: list[tuple[float, int, dict[str, Any]]] = []
    numbers = count()
    for tick in count():
        now_s = tick * tick_s
        for host in range(hosts):
            load[host] = min(75.0, max(5.0, load[host] + random.gauss(0, 2)))
            trouble[host] = (
                trouble[host] - 1 if trouble[host] > 0 else random.randint(90, 240) * (random.random() < 0.002)
            )
            for metric in MADE_UP:
                value = make_value(random, metric, load[host], trouble[host] > 0)
                at = start + timedelta(seconds=now_s + random.random() * tick_s)
                event: dict[str, Any] = {
                    "host": f"web-{host + 1}",
                    "metric": metric,
                    "value": round(value, 3),
                    "at": at.isoformat(),
                }
                heapq.heappush(waiting, (now_s + delay(random), next(numbers), event))
        while waiting and waiting[0][0] < now_s + tick_s:
            arrived_s, _, event = heapq.heappop(waiting)
            arrived = start + timedelta(seconds=arrived_s)
            yield Record(topic, event["host"], json.dumps(event), round(arrived.timestamp() * 1000))


def make_value(random: Random, metric: str, load: float, trouble: bool) -> float:
    if metric == "cpu":
        return min(100.0, load + random.gauss(0, 5) + (60 if trouble else 0))
    if metric == "memory":
        return min(100.0, 30 + load / 2 + random.gauss(0, 1))
    return random.lognormvariate(3 + load / 100, 0.5) * (8 if trouble else 1)


def delay(random: Random) -> float:
    luck = random.random()
    if luck < 0.95:
        return random.random()
    return random.uniform(1, 20) if luck < 0.995 else random.uniform(60, 300)


def sample_machine(run: Run) -> Iterator[Record]:
    """Measurements of this machine every second: processors, memory, and the time to connect to its broker."""
    host, before = socket.gethostname(), processors()
    while not run.stopping:
        run.pause(1.0)
        after = processors()
        busy, total = (new - old for new, old in zip(after, before, strict=True))
        before = after
        values = {"cpu": 100 * busy / max(1, total), "memory": memory(), "latency_ms": connect_ms(run.bootstrap)}
        at = datetime.now(UTC).isoformat()
        for metric, value in values.items():
            if value is not None:
                event: dict[str, Any] = {"host": host, "metric": metric, "value": round(value, 3), "at": at}
                yield Record(run["metrics"], host, json.dumps(event))


def processors() -> tuple[int, int]:
    """Busy and total time since the machine started."""
    first = proc("stat").splitlines()[0]
    times = [int(word) for word in first.split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


def memory() -> float:
    sizes = {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in proc("meminfo").splitlines())
    }
    return 100 * (1 - sizes["MemAvailable"] / sizes["MemTotal"])


def proc(name: str) -> str:
    try:
        return Path("/proc", name).read_text()
    except OSError:
        raise UsageError("sample=true reads /proc, which only Linux has: remove it to use generated events") from None


def connect_ms(bootstrap: str) -> float | None:
    name, _, port = bootstrap.split(",")[0].rpartition(":")
    began = time.perf_counter()
    try:
        socket.create_connection((name.strip("[]"), int(port)), timeout=5).close()
    except OSError:
        return None
    return (time.perf_counter() - began) * 1000
