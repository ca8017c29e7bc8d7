"""Machines for Spark, made of namespaces: a network, processes and file systems that the others do not see.

    unshare --net --mount --pid ... python machines.py FOLDER     the world that `test_machines.py` starts

The world has a bridge, 10.99.0.1, where the brokers and an S3 server are. A machine has an address on it and a /tmp of
its own; it does not see this clone's sources. All it shares with the others is FOLDER/shared. Killing a machine is a
power cut: its first process is killed, and with it everything that runs there.

The scenario: export to S3, mirror to a second cluster, and activity, on Spark's standalone cluster of a master and two
workers, with Ottla only as a wheel in the shared folder and in an archive that Spark ships to the executors. A worker
machine dies during the export, the driver's machine during activity; a second driver continues. All is compared with
pandas. With `alone` behind FOLDER there are no machines: executors are processes of Spark's `local-cluster`, for where
only root may make namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd
import pyspark
from judge import free_ports, stop_process
from s3 import S3, SECRET
from spark import jvm, topics
from spark.pipelines.activity import test_activity as visits
from waiting import wait_until

from ottla.client.cluster import Cluster
from ottla.client.failure import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE: Final = Path(__file__).resolve()
SOURCES: Final = HERE.parents[2] / "src"
SPARK: Final = Path(pyspark.__file__).parent
WAIT_S: Final = 900.0
ORDERS: Final = 12_000
EVENTS: Final = visits.COUNT
BUCKET: Final = "tables"
TOO_BUSY: Final = "the machine is too busy"
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
SPACE: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
# The clone may be in /tmp itself: it is there again, but for its sources.
MOUNTS: Final = """
mount --bind "$SHARED" /mnt && mount --bind "$CLONE" /srv && mount -t tmpfs tmpfs /tmp && mkdir -p "$SHARED" "$CLONE" &&
mount --bind /mnt "$SHARED" && mount --bind /srv "$CLONE" && umount /mnt /srv &&
mount -t tmpfs tmpfs "$SOURCES" && touch /tmp/ready && exec sleep 86400
"""


def call(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


class Machine:
    def __init__(self, name: str, number: int, shared: Path, log: Path) -> None:
        self.name, self.address = name, f"10.99.0.{number}"
        self._shared = shared
        self._log = log / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._times = 0

    def start(self) -> Machine:
        self._times += 1
        outside, inside = f"v{self.name}{self._times}", f"e{self.name}{self._times}"
        folders = {"SHARED": str(self._shared), "SOURCES": str(SOURCES), "CLONE": str(SOURCES.parent)}
        environment = {**os.environ, **folders}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*SPACE, "sh", "-c", MOUNTS], env=environment, stdout=log, stderr=log)
        self._first = wait_until(self._child, f"{self.name} is there", seconds=WAIT_S)
        call("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        call("ip", "link", "set", outside, "master", "bridge", "up")
        call("ip", "link", "set", inside, "netns", str(self._first))
        for words in (["addr", "add", f"{self.address}/24", "dev", inside], ["link", "set", inside, "up"],
                      ["link", "set", "lo", "up"]):  # fmt: skip
            call("nsenter", "-t", str(self._first), "-n", "ip", *words)
        wait_until(lambda: self.run("test", "-e", "/tmp/ready") == 0, f"{self.name} is ready", seconds=WAIT_S)
        return self

    def _child(self) -> int | None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        pid = self._process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(OSError):  # it has ended
                program = Path(f"/proc/{child}/cmdline").read_text().partition("\0")[0]
                if program in ("sh", "sleep"):  # it runs there, in namespaces of its own
                    return int(child)
        return None

    def _inside(self, words: tuple[str, ...]) -> list[str]:
        return ["nsenter", "-t", str(self._first), "-n", "-m", "-p", "--", *words]

    def run(self, *words: str) -> int:
        return subprocess.run(self._inside(words), check=False, stdin=subprocess.DEVNULL).returncode

    def begin(self, *words: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._inside(words), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "SPARK_LOCAL_IP": self.address, **environment}, cwd="/",
            )  # fmt: skip

    def kill(self) -> None:
        """Cut the power."""
        assert self._process is not None
        os.kill(self._first, 9)
        self._process.wait(WAIT_S)

    def told(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]


class Pretended(Machine):
    """No machine, but some processes: those that have `word` in their command line."""

    def __init__(self, name: str, word: str, folder: Path) -> None:
        super().__init__(name, 0, folder, folder)
        self.address = "127.0.0.1"
        self._word, self._mark = word, f"STORY={folder}"

    def start(self) -> Pretended:
        return self

    def _inside(self, words: tuple[str, ...]) -> list[str]:
        return ["env", self._mark, *words]

    def kill(self) -> None:
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                ours = self._mark.encode() in (path / "environ").read_bytes().split(b"\0")
                if ours and self._word.encode() in (path / "cmdline").read_bytes():
                    os.kill(int(path.name), 9)
                    if self._word == EXECUTOR:  # one of the two
                        return


class World:
    def __init__(self, folder: Path, *, alone: bool) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        self.shared.mkdir(parents=True)
        self.alone = alone
        self.java = " ".join(jvm.options())  # the call makes every Spark below start faster
        self.host = "127.0.0.1" if alone else "10.99.0.1"
        if not alone:
            call("ip", "link", "set", "lo", "up")
            call("ip", "link", "add", "bridge", "type", "bridge")
            call("ip", "addr", "add", f"{self.host}/24", "dev", "bridge")
            call("ip", "link", "set", "bridge", "up")
        self.s3 = S3(folder / "s3", host=self.host).start()
        self.s3.make_bucket(BUCKET)
        ports = free_ports(2)
        self.here, self.there = (f"{self.host}:{port}" for port in ports)
        self.brokers = [self._broker(port) for port in ports]
        names = ("master", "one", "two", "driver")
        self.master, self.one, self.two, self.driver = (
            Pretended(name, EXECUTOR if name == "one" else "", folder)
            if alone
            else Machine(name, number, self.shared, folder).start()
            for number, name in enumerate(names, 2)
        )
        self.spark = "local-cluster[2,1,700]" if alone else f"spark://{self.master.address}:7077"

    def _broker(self, port: int) -> subprocess.Popen[bytes]:
        with (self.folder / f"broker-{port}.log").open("wb") as log:
            words = ["-m", "ottla", "serve", "--host", self.host, "--port", str(port)]
            started = [sys.executable, *words, "--data", str(self.folder / f"broker-{port}")]
            return subprocess.Popen(started, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def spark_class(self, machine: Machine, *words: str) -> None:
        environment = {
            "SPARK_HOME": str(SPARK), "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": self.java,
            "SPARK_MASTER_OPTS": "-Dspark.worker.timeout=15", "SPARK_WORKER_DIR": "/tmp/work",
        }  # fmt: skip
        machine.begin(str(SPARK / "bin" / "spark-class"), *words, environment=environment)

    def start_master(self) -> None:
        if self.alone:
            return
        self.spark_class(
            self.master, "org.apache.spark.deploy.master.Master", "--host", self.master.address, "--port", "7077"
        )

    def start_worker(self, machine: Machine) -> None:
        if self.alone:
            return
        self.spark_class(
            machine, "org.apache.spark.deploy.worker.Worker", "--host", machine.address, "--cores", "1", "--memory",
            "600m", self.spark,
        )  # fmt: skip

    def start_driver(self) -> subprocess.Popen[bytes]:
        """With no Ottla but the one in the shared folder."""
        return self.driver.begin(
            sys.executable, str(self.shared / "machines_driver.py"), str(self.shared), self.driver.address,
            self.spark, self.s3.endpoint, self.here, self.there,
            environment={"PYTHONPATH": f"{jvm.STARTUP}:{self.shared / 'site'}", "HOME": "/tmp", "JAVA": self.java},
        )  # fmt: skip

    def end(self) -> None:
        self.s3.stop()
        for broker in self.brokers:
            stop_process(broker, kill=True)


def pack(shared: Path) -> None:
    """Ottla as pip unpacks its wheel, for the driver; and the same as an archive, for the executors.

    The wheel is made without Rust, which takes long; the native part of this clone goes beside it.
    """
    wheel, site = shared / "wheel", shared / "site"
    words = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheel), str(SOURCES.parent))
    subprocess.run([sys.executable, "-m", "pip", *words], check=True, env={"PATH": str(shared)})
    (made,) = wheel.glob("ottla-*.whl")
    with zipfile.ZipFile(made) as packed:
        packed.extractall(site)
    for native in SOURCES.glob("ottla/_native*.so"):
        shutil.copy(native, site / "ottla")
    with tarfile.open(shared / "site.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(shared / "site", ".")
    shutil.copy(HERE.with_name("machines_driver.py"), shared)
    (shared / "secret").write_text(SECRET)


def story(world: World) -> None:
    here, there = world.here, world.there
    wait_until(lambda: reached(here) and reached(there), "the brokers are there", seconds=WAIT_S)
    fill(here)
    for machine in (world.one, world.two):
        world.start_worker(machine)
    driver = Driver(world)
    commits = f"{BUCKET}/export/_ottla/commits"
    driver.until(lambda: bool(world.s3.keys(commits)), "a commit of the export")
    world.one.kill()
    print("a worker machine is dead", flush=True)
    world.one.start()
    world.start_worker(world.one)
    done = world.shared / "checkpoints" / "activity-live" / "commits"
    driver.until(lambda: done.exists() and len(list(done.glob("[0-9]*"))) >= 2, "two batches of activity")
    world.driver.kill()
    print("the driver's machine is dead", flush=True)
    driver.process.wait(WAIT_S)
    world.driver.start()
    driver.process = world.start_driver()
    driver.until(lambda: driver.process.poll() == 0, "the second driver is done")
    check(world, here, there)
    print("equal", flush=True)


class Driver:
    """Started again when Spark gave up because its Python was slow to start: there is no option for that."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.process = world.start_driver()

    def until(self, reached: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            if self.process.poll():
                told = self._world.driver.told()
                assert TOO_BUSY in told, told
                self.process = self._world.start_driver()
            return reached()

        wait_until(look, what, seconds=WAIT_S)


def reached(bootstrap: str) -> bool:
    try:
        with Cluster(bootstrap, timeout_s=2.0) as cluster:
            return cluster.topics([]) is not None
    except Failed:
        return False


def orders() -> list[tuple[str, str]]:
    return [
        (f"customer-{number % 97}", f"order {number} of {number * 31 % 1009} cents " * 4) for number in range(ORDERS)
    ]


def fill(bootstrap: str) -> None:
    from confluent_kafka import Producer

    with Cluster(bootstrap) as cluster:
        for name, partitions in (("orders", 2), ("activity", 1)):
            cluster.create(name, partitions)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number, (key, value) in enumerate(orders()):
        producer.produce("orders", value, key, partition=number % 2)
        producer.poll(0)
    assert producer.flush(60) == 0
    visits.produce(bootstrap, "activity", [json.dumps(event) for event in visits.made_up(1, EVENTS)])


def check(world: World, here: str, there: str) -> None:
    import pyarrow.dataset as ds

    table = ds.dataset(f"{BUCKET}/export", filesystem=world.s3.filesystem()).to_table().to_pandas()
    expected = pd.DataFrame(orders(), columns=["key", "value"])
    expected = expected.assign(partition=expected.index % 2, offset=expected.index // 2)
    found = table[["key", "value", "partition", "offset"]].sort_values(["offset", "partition"], ignore_index=True)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    mirrored = [
        [(message.key().decode(), message.value().decode()) for message in topics.committed(there, "orders")
         if message.partition() == index]
        for index in range(2)
    ]  # fmt: skip
    assert mirrored == [orders()[0::2], orders()[1::2]]
    frame = visits.framed(visits.made_up(1, EVENTS))
    watermark = frame["at"].max() - visits.LATE
    assert visits.read(here, "activity-sessions") == visits.sessions(frame, watermark)
    assert visits.read(here, "activity-minutes") == visits.minutes(frame, watermark)
    visits.check_tables(world.shared, "parquet", frame, broken=0, ahead=0)


if __name__ == "__main__":
    began = time.monotonic()
    world = World(Path(sys.argv[1]), alone="alone" in sys.argv[2:])
    try:
        pack(world.shared)
        world.start_master()
        story(world)
    except BaseException:
        for machine in (world.master, world.one, world.two, world.driver):
            print(f"--- {machine.name}\n{machine.told()}", file=sys.stderr)
        raise
    finally:
        world.end()
        print(f"{time.monotonic() - began:.0f} s", flush=True)
