"""Three brokers with three replicas, Ottla and Apache Kafka 4 side by side, and Ottla's RF 1 over one to three brokers.

    python -m bench.cluster [--pairs 5] [--seconds 4] [--only replicated,cores]

replicated   records of 1 kB, RF 3, acks=-1, 6 partitions, one librdkafka producer: MB/s acknowledged, CPU-seconds of
             all brokers per GB, p50 and p99 from `produce` to the acknowledgement, start and memory of the brokers
cores        the same with RF 1 on one, two and three Ottla brokers: how much more processes help on this machine

Both clusters stay up and take short turns (`turns.py`); each pair of neighbouring turns gives one ratio. The producer
runs in a process of its own. Apache Kafka is three KRaft nodes with the JVM options of its release; ZooKeeper's CPU and
memory are counted on Ottla's side in a separate line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.brokers import RELEASE_JVM, ROOT, TICK
from bench.turns import order, ratios, spread
from ottla.testing import Cluster
from tests import judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

NUMBERS = (1, 2, 3)
PARTITIONS = 6
SIZE = 1000
START_S = 120.0
LOAD = """
import json, sys, time
from confluent_kafka import Producer
bootstrap, topic, seconds, size = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 131072,
                     "queue.buffering.max.messages": 100000, "enable.idempotence": False, "log_level": 0})
value, taken, errors = b"x" * size, [], 0
def done(error, message):
    global errors
    if error is not None:
        errors += 1
    else:
        taken.append(message.latency())
for index in range(600):  # connections, metadata
    producer.produce(topic, value, partition=index % 6)
producer.flush(30)
print("ready", flush=True)
sys.stdin.readline()
began, sent = time.monotonic(), 0
while time.monotonic() - began < seconds:
    try:
        producer.produce(topic, value, partition=(sent >> 7) % 6, on_delivery=done)
        sent += 1
    except BufferError:
        producer.poll(0.001)
    if sent % 500 == 0:
        producer.poll(0)
producer.flush(60)
elapsed = time.monotonic() - began
taken.sort()
print(json.dumps({"mb_s": len(taken) * size / 1e6 / elapsed, "gb": len(taken) * size / 1e9, "errors": errors,
                  "p50_ms": taken[len(taken) // 2] * 1e3, "p99_ms": taken[len(taken) * 99 // 100] * 1e3}), flush=True)
"""


def cpu_s(pids: Sequence[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def memory_mb(pids: Sequence[int]) -> float:
    texts = (Path(f"/proc/{pid}/status").read_text() for pid in pids)
    return sum(int(line.split()[1]) / 1024 for text in texts for line in text.splitlines() if line.startswith("VmRSS:"))


class OttlaSide:
    name = "ottla"

    def __init__(self, brokers: int = 3) -> None:
        began = time.monotonic()
        self.cluster = Cluster(brokers).__enter__()
        self.start_s = time.monotonic() - began

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.cluster.brokers.values()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.__exit__(None, None, None)


class KafkaSide:
    name = "kafka"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench-cluster-"))
        ports = judge.free_ports(6)
        self.ports, side = ports[:3], ports[3:]
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in zip(NUMBERS, side, strict=True))
        files = []
        for number, port, other in zip(NUMBERS, self.ports, side, strict=True):
            listener = f"PLAINTEXT://127.0.0.1:{port}"
            settings = {
                "process.roles": "broker,controller",
                "node.id": number,
                "listeners": f"{listener},CONTROLLER://127.0.0.1:{other}",
                "advertised.listeners": listener,
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "controller.quorum.voters": voters,
                "log.dirs": self.folder / f"data-{number}",
            }
            files.append(self.folder / f"{number}.properties")
            files[-1].write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            judge.tool("kafka.tools.StorageTool", "format", "-t", judge.CLUSTER_ID, "-c", str(files[-1]))
        began = time.monotonic()
        options = [*RELEASE_JVM, *judge.logging_options(judge.NEWEST), "-cp", judge.classpath()]
        self.processes = []
        for file in files:
            with file.with_suffix(".log").open("ab") as log:
                command = ["java", *options, "kafka.Kafka", str(file)]
                self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        deadline = began + START_S
        while not all(judge.answers(port) for port in self.ports) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.start_s = time.monotonic() - began

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            judge.stop_process(process, kill=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def made(side: OttlaSide | KafkaSide, name: str, replicas: int) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
    deadline = time.monotonic() + START_S
    while True:
        try:
            admin.create_topics([NewTopic(name, PARTITIONS, replicas)])[name].result(30)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return name


def turn(side: OttlaSide | KafkaSide, topic: str, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-c", LOAD, side.bootstrap, topic, str(seconds), str(SIZE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        assert load.stdout.readline().strip() == "ready"
        before = cpu_s(side.pids)
        load.stdin.write("\n")
        load.stdin.flush()
        sample: dict[str, float] = json.loads(load.stdout.readline())
    sample["cpu_s_per_gb"] = (cpu_s(side.pids) - before) / sample["gb"]
    return sample


def middle(samples: Sequence[dict[str, float]], name: str) -> float:
    return spread([one[name] for one in samples]).median


def replicated(pairs: int, seconds: float, warm_up: float) -> None:
    with ExitStack() as stack:
        sides: list[Any] = [stack.enter_context(OttlaSide()), stack.enter_context(KafkaSide())]
        topics = {side.name: made(side, "replicated", 3) for side in sides}
        for side in sides:
            turn(side, topics[side.name], warm_up)  # not measured
        samples: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
        for side in order(sides, pairs):
            samples[side.name].append(turn(side, topics[side.name], seconds))
        print("| RF 3, acks=-1, 1 kB | Apache Kafka | Ottla | Ottla / Kafka |\n| --- | --- | --- | --- |")
        ours, theirs = samples["ottla"], samples["kafka"]
        for name, unit in (("mb_s", "MB/s"), ("cpu_s_per_gb", "CPU s/GB"), ("p50_ms", "ms p50"), ("p99_ms", "ms p99")):
            ratio = spread(ratios([one[name] for one in ours], [one[name] for one in theirs]))
            print(f"| {unit} | {middle(theirs, name):.1f} | {middle(ours, name):.1f} | {ratio} |")
        print(f"| s to start | {sides[1].start_s:.1f} | {sides[0].start_s:.1f}, ZooKeeper included | |")
        zookeeper = memory_mb([sides[0].cluster.zookeeper.pid])
        print(f"| MB resident | {memory_mb(sides[1].pids):.0f} | {memory_mb(sides[0].pids):.0f} + {zookeeper:.0f} | |")
        errors = sum(one["errors"] for one in (*ours, *theirs))
        print(f"\n{errors:.0f} errors; load average {os.getloadavg()[0]:.1f}", flush=True)


def cores(seconds: float) -> None:
    print("| RF 1, acks=-1, 1 kB | MB/s | CPU s/GB |\n| --- | --- | --- |")
    for count in NUMBERS:
        with OttlaSide(count) as side:
            topic = made(side, "single", 1)
            turn(side, topic, seconds)
            samples = [turn(side, topic, seconds) for _ in range(3)]
            print(f"| {count} broker(s) | {middle(samples, 'mb_s'):.0f} | {middle(samples, 'cpu_s_per_gb'):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds of load that do not count, for each side")
    parser.add_argument("--only", default="replicated,cores")
    options = parser.parse_args()
    if "replicated" in options.only:
        replicated(options.pairs, options.seconds, options.warm_up)
    if "cores" in options.only:
        cores(options.seconds)


if __name__ == "__main__":
    main()
