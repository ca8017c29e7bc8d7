"""The two sides: Apache Kafka and Ottla, each one node on loopback, each started as its users start it.

Apache Kafka gets the JVM options and the thread counts of its release's start scripts (1 GB heap, G1, both
compilers); its folder is formatted before the clock starts. Both delete the files of dropped topics after a tenth of a
second instead of a minute, because a run would fill the disk and the memory otherwise. Nothing else differs from the
defaults.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.wire import BenchError, Connection, batch
from tests import judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

ROOT: Final = Path(__file__).resolve().parent.parent
TICK: Final = os.sysconf("SC_CLK_TCK")
CPU_OF_PROCESS: Final = 2  # part of a clock id: CPU time of all threads of a process, including those that have ended
DELETE_DELAY_MS: Final = 100
DELETE_S: Final = 10.0
RELEASE_JVM: Final = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip


class Broker:
    """A process with a port and a folder of its own; its resource use is read from /proc."""

    name = ""

    def __init__(self, *, tls: bool = False, options: Mapping[str, object] | None = None) -> None:
        """`tls` adds an SSL listener, which the Java client then uses; `options` are further broker options."""
        self.options = dict(options or {})
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        self.port, self.side_port, self.tls_port = judge.free_ports(3)
        self.process: subprocess.Popen[bytes] | None = None
        self.ca = self._write_certificates() if tls else None

    def _write_certificates(self) -> Path:
        from ottla.testing.certificates import Certificate

        authority = Certificate("bench")
        Certificate("broker", authority, hosts=("127.0.0.1",)).write(self.folder / "broker.pem")
        return authority.write_certificate(self.folder / "ca.pem")

    def listeners(self) -> str:
        plain = f"PLAINTEXT://127.0.0.1:{self.port}"
        return plain if self.ca is None else f"{plain},SSL://127.0.0.1:{self.tls_port}"

    def tls_settings(self) -> dict[str, object]:
        if self.ca is None:
            return {}
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.folder / "broker.pem"}

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> Path:
        return self.folder / "output.log"

    def spawn(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, env=self.environment()
            )

    def start(self) -> Self:
        self.spawn()
        try:
            self.first_produce()
        except BaseException:
            self.close()
            raise
        return self

    def first_produce(self, seconds: float = 60.0) -> None:
        """Return when a record sent to a topic that did not exist before has been acknowledged."""
        record, deadline = batch(100, 1).data, time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                with Connection(self.port, timeout=5.0) as connection:
                    while not connection.led("first", create=True):
                        time.sleep(0.002)
                    if connection.produce("first", record) == 0:
                        return
            except (OSError, BenchError):
                if self.process is not None and self.process.poll() is not None:
                    break
            time.sleep(0.002)
        raise BenchError(f"{self.name} did not start:\n{self.log.read_text(errors='replace')[-3000:]}")

    def connect(self) -> Connection:
        return Connection(self.port)

    def cpu_s(self) -> float:
        """User and system time of all threads, also ended ones, from the CPU clock: /proc only counts in 10 ms."""
        return time.clock_gettime(~self.pid << 3 | CPU_OF_PROCESS)

    def wait_deleted(self) -> None:
        """Return when the files of deleted topics are gone."""
        deadline = time.monotonic() + DELETE_S
        while any((self.folder / "data").glob("*-delete")):
            if time.monotonic() > deadline:
                raise BenchError(f"{self.name} does not delete its files")
            time.sleep(0.01)

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Resident memory now, or its peak with VmHWM."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
        raise BenchError(f"{self.name}: no {field}")

    def stop(self) -> None:
        if self.process is not None:
            judge.stop_process(self.process)
            self.process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Kafka(Broker):
    name = "kafka"

    def __init__(self, *, tls: bool = False, options: Mapping[str, object] | None = None) -> None:
        super().__init__(tls=tls, options=options)
        self.properties = self.folder / "server.properties"
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        judge.tool("kafka.tools.StorageTool", "format", "-t", judge.CLUSTER_ID, "-c", str(self.properties))

    def command(self) -> Sequence[str]:
        options = [*RELEASE_JVM, *judge.logging_options(judge.NEWEST), "-cp", judge.classpath()]
        return ["java", *options, "kafka.Kafka", str(self.properties)]

    def _settings(self) -> dict[str, object]:
        listener = self.listeners()
        return {
            **self.tls_settings(),
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"{listener},CONTROLLER://127.0.0.1:{self.side_port}",
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "controller.quorum.voters": f"1@127.0.0.1:{self.side_port}",
            "log.dirs": self.folder / "data",
            "num.network.threads": 3,
            "num.io.threads": 8,
            "socket.send.buffer.bytes": 102400,
            "socket.receive.buffer.bytes": 102400,
            "num.recovery.threads.per.data.dir": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "log.segment.delete.delay.ms": DELETE_DELAY_MS,
            "log.initial.task.delay.ms": DELETE_DELAY_MS,  # else nothing is deleted in the first half minute
            **self.options,
        }


class Ottla(Broker):
    name = "ottla"

    def command(self) -> Sequence[str]:
        settings = {"log.segment.delete.delay.ms": DELETE_DELAY_MS, **self.tls_settings(), **self.options}
        where = ["--port", str(self.port)]
        if self.ca is not None:
            where, settings["listeners"] = [], self.listeners()
        arguments = ["serve", *where, "--data", str(self.folder / "data")]
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"]
        return [sys.executable, "-m", "ottla", *arguments]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


SIDES: Final[dict[str, type[Broker]]] = {"kafka": Kafka, "ottla": Ottla}
