"""The JVM that runs Load.java: started once, then used for one measurement after the other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from bench.wire import BenchError
from tests import judge

if TYPE_CHECKING:
    from bench.brokers import Broker

SOURCE = Path(__file__).with_name("Load.java")


class Client:
    """Apache Kafka's Java producer and consumer, warm between rows and the same for both brokers."""

    def __init__(self) -> None:
        path = f"{judge.compiled(SOURCE, judge.classpath())}:{judge.classpath()}"
        command = ["java", "-Xmx1G", "-XX:+UseParallelGC", *judge.logging_options(judge.NEWEST), "-cp", path, "Load"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        self._line()

    def run(self, name: str, broker: Broker, **options: object) -> dict[str, float]:
        assert self.process.stdin is not None
        pairs = {"bootstrap": broker.bootstrap, "pid": broker.pid, **options}
        if broker.ca is not None:
            pairs |= {"bootstrap": f"127.0.0.1:{broker.tls_port}", "ca": broker.ca}
        self.process.stdin.write(" ".join([name, *(f"{key}={value}" for key, value in pairs.items())]) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self._line())
        if "error" in answer:
            raise BenchError(f"{name} on {broker.name}: {answer['error']}")
        return {key: float(value) for key, value in answer.items()}

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(f"the load JVM ended with status {self.process.wait()}")
        return line

    def close(self) -> None:
        judge.stop_process(self.process)  # type: ignore[arg-type]  # it talks text, which does not matter for ending it

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
