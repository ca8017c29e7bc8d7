"""A real ZooKeeper on the loopback interface, in its own process.

Its jars come with `pyspark`, or from the folder in OTTLA_ZOOKEEPER_JARS (the `libs` of any Apache Kafka with ZooKeeper
work). It needs Java, half a second to start and about 60 MB. It exits with the process that started it, even if that
is killed: a small guard process watches a pipe to it.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from ottla.embed import freeze
from ottla.testing.ports import free_ports

JARS = ("zookeeper-", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-")
NETTY = ("netty-common-", "netty-buffer-", "netty-transport-", "netty-handler-", "netty-resolver-", "netty-codec-")
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
START_S_MAX = 60.0
TICK_MS = 200  # sessions expire on a tick
SESSION_MS_MIN, SESSION_MS_MAX = 400, 120_000

# Starts a program, prints its process id, and kills it when standard input is closed.
GUARD = """
import os, subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
print(child.pid, flush=True)
threading.Thread(target=lambda: (os.read(0, 1), child.kill()), daemon=True).start()
os._exit(child.wait() & 127)
"""


class ZooKeeperFailed(Exception):
    """ZooKeeper did not start; the message says why and what to do."""


class ZooKeeperServer:
    """One server, with a port and a folder that stay the same over restarts.

    `durable=False` is for tests: writes are acknowledged before they are on disk. They survive a killed process, but
    not a power failure.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        port: int = 0,
        durable: bool = False,
        heap: str = "96m",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="ottla-zookeeper-"))
        self.port = port or free_ports(1)[0]
        self.pid = 0
        self._durable = durable
        self._heap = heap
        self._settings = dict(settings or {})
        self._guard: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "zookeeper.log"

    def start(self) -> Self:
        assert self._guard is None, "ZooKeeper runs"
        command = [java(), *self._flags(), "-cp", os.pathsep.join(map(str, jars())), MAIN, str(self._configure())]
        with self.log.open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", GUARD, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline() or 0)
        deadline = time.monotonic() + START_S_MAX
        while not answers(self.port):
            if self._guard.poll() is not None or time.monotonic() > deadline:
                self.kill()
                said = self.log.read_text(errors="replace").strip().splitlines()
                raise ZooKeeperFailed(f"ZooKeeper did not start: {said[-1] if said else 'it said nothing'}")
            time.sleep(0.02)
        return self

    def _flags(self) -> list[str]:
        flags = [f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        flags += ["-Dzookeeper.preAllocSize=1024", "-Dzookeeper.admin.enableServer=false"]
        return flags if self._durable else [*flags, "-Dzookeeper.forceSync=no"]

    def _configure(self) -> Path:
        settings = {
            "dataDir": str(self.folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": str(TICK_MS),
            "minSessionTimeout": str(SESSION_MS_MIN),
            "maxSessionTimeout": str(SESSION_MS_MAX),
            "maxClientCnxns": "0",
            "4lw.commands.whitelist": "srvr,cons",
            **self._settings,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file

    def stop(self) -> None:
        """Stop gracefully (SIGTERM)."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        self.kill()
        return self.start()

    def pause(self) -> None:
        """Stop responding without closing connections, until `resume`."""
        freeze(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        assert guard.stdout is not None
        if guard.poll() is None:
            os.kill(self.pid, signal.SIGCONT)  # a paused process handles no other signal
            os.kill(self.pid, number)
        guard.wait()
        guard.stdin.close()
        guard.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.kill()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if not found:
        raise ZooKeeperFailed("ZooKeeper needs Java: install a JRE (11 or newer), or set JAVA_HOME")
    return found


def jars() -> list[Path]:
    """The jars for the class path."""
    for folder in jar_folders():
        names = sorted(folder.glob("*.jar"))
        found = [path for path in names if path.name.startswith(JARS + NETTY)]
        if all(any(path.name.startswith(jar) for path in found) for jar in JARS):
            return found
    raise ZooKeeperFailed(
        "ZooKeeper's jars were not found: install them with `pip install ottla[spark]`, or set OTTLA_ZOOKEEPER_JARS to "
        "a folder that has them, such as the libs of Apache Kafka 3.9"
    )


def jar_folders() -> Iterator[Path]:
    if chosen := os.environ.get("OTTLA_ZOOKEEPER_JARS"):
        yield Path(chosen).expanduser()
        return
    pyspark = find_spec("pyspark")
    for place in (pyspark.submodule_search_locations or ()) if pyspark else ():
        yield Path(place) / "jars"


def answers(port: int) -> bool:
    """Whether the server accepts sessions; it starts to listen a little earlier."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in connection.makefile("rb").read()
    except OSError:
        return False
