"""Apache Kafka as the reference: its jars from Maven, brokers, command line tools, and clients of many versions.

    jar("kafka-clients", "4.3.1")            one jar, for tests that read its content
    classpath("3.9.2")                       everything a broker and its tools need
    client_classpath("0.11.0.3")             one kafka-clients release and nothing else
    java("org.some.Class" | path, "arg")     run a class, or compile a source file and run it
    tool("org.apache.kafka.tools.X", ...)    run a command line tool in a JVM that is reused
    with Kafka() as kafka: kafka.bootstrap   a broker on loopback: 4.x with KRaft, 3.x with ZooKeeper

Downloads and compiled files go into ${OTTLA_CACHE:-~/.cache/ottla}, one folder per version, each filled under a
file lock and marked `.complete` last, so that parallel test workers download nothing twice and see only full folders.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import IO, Self

NEWEST: Final = "4.3.1"  # KRaft
ZOOKEEPER: Final = "3.9.2"  # the last release line with ZooKeeper, and the last that serves the old protocol versions
LAST_ON_ZOOKEEPER: Final = "2.3.1"  # its tools take --zookeeper everywhere
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
TIMEOUT_S: Final = 120.0

# A short-lived JVM: the cheap compiler and collector start fastest, and two test workers share two cores.
JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true")
SOURCES: Final = Path(__file__).parent / "compat" / "java"

POM: Final = """<project><modelVersion>4.0.0</modelVersion>
<groupId>judge</groupId><artifactId>judge</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies></project>
"""
DEPENDENCY: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>log4j</groupId><artifactId>log4j</artifactId></exclusion>"
    "<exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-log4j12</artifactId></exclusion>"
    "<exclusion><groupId>com.sun.jdmk</groupId><artifactId>*</artifactId></exclusion>"
    "<exclusion><groupId>com.sun.jmx</groupId><artifactId>*</artifactId></exclusion>"
    "<exclusion><groupId>javax.jms</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)
LOG4J1: Final = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
LOG4J2: Final = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR"><Appenders><Console name="err" target="SYSTEM_ERR">
<PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="err"/></Root></Loggers></Configuration>
"""


class Output(NamedTuple):
    status: int
    out: str
    err: str


class JudgeError(AssertionError):
    """Apache Kafka could not be used: a download, a compilation or a start failed."""


# --- downloads -------------------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    return Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")


@contextmanager
def filled(name: str) -> Iterator[Path | None]:
    """Yield the cache folder `name` to be filled, or None when it is complete; other processes wait meanwhile."""
    folder = cache_folder() / name
    if (folder / ".complete").exists():
        yield None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / ".complete").exists():
            yield None
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        (folder / ".complete").touch()


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """The cache folder `name`, filled by `fill` at its first use on this machine."""
    with filled(name) as folder:
        if folder is not None:
            fill(folder)
    return cache_folder() / name


def run(command: Sequence[str | os.PathLike[str]], what: str, **options: object) -> Output:
    """Run a command to its end; a failure includes its output."""
    done = subprocess.run(  # type: ignore[call-overload]
        [os.fspath(word) for word in command], capture_output=True, timeout=600, **options
    )
    output = Output(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    if output.status:
        raise JudgeError(f"{what} failed with status {output.status}:\n{output.out[-4000:]}\n{output.err[-4000:]}")
    return output


def fetch_jars(folder: Path, coordinates: Sequence[tuple[str, str, str]]) -> None:
    """Copy the named artifacts and their run-time dependencies into folder/libs."""
    pom = folder / "pom.xml"
    pom.write_text(POM.format("".join(DEPENDENCY.format(*coordinate) for coordinate in coordinates)))
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder / 'libs'}"]
    run(["mvn", "-B", "-q", "-f", pom, *goal], f"fetching {coordinates[0][1]} {coordinates[0][2]} with Maven")
    (folder / "log4j.properties").write_text(LOG4J1)
    (folder / "log4j2.xml").write_text(LOG4J2)


@cache
def libs(version: str = NEWEST) -> Path:
    """The folder with every jar of one Apache Kafka release."""
    parts = ("kafka_2.13", "kafka-tools", "kafka-clients", "kafka-server", "kafka-server-common", "kafka-storage",
             "kafka-group-coordinator", "kafka-transaction-coordinator", "kafka-metadata", "kafka-raft")  # fmt: skip
    coordinates = [("org.apache.kafka", part, version) for part in parts]
    if version.startswith("3."):
        coordinates += [
            ("org.slf4j", "slf4j-reload4j", "1.7.36"),
            ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),  # ZooKeeper's server needs it, declares it optional
            ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
        ]
    else:
        names = ("log4j-api", "log4j-core", "log4j-slf4j-impl", "log4j-1.2-api")
        coordinates += [("org.apache.logging.log4j", name, "2.25.3") for name in names]
    return cached(f"kafka-{version}", lambda folder: fetch_jars(folder, coordinates)) / "libs"


def jar(name: str, version: str = NEWEST) -> Path:
    """One jar of one release, e.g. jar("kafka-clients", "3.9.2")."""
    path = libs(version) / f"{name}-{version}.jar"
    if not path.exists():
        raise JudgeError(f"{path} is not part of Apache Kafka {version}")
    return path


def classpath(version: str = NEWEST) -> str:
    return f"{libs(version)}/*"


@cache
def client_classpath(version: str) -> str:
    """One kafka-clients release by itself, for programs that must use that release's protocol versions."""
    coordinates = [("org.apache.kafka", "kafka-clients", version), ("org.slf4j", "slf4j-nop", "1.7.36")]
    return f"{cached(f'kafka-clients-{version}', lambda folder: fetch_jars(folder, coordinates))}/libs/*"


@cache
def scala_classpath(version: str, scala: str = "2.11") -> str:
    """An old release with its Scala clients and tools (SimpleConsumer, the old producer)."""
    coordinates = [("org.apache.kafka", f"kafka_{scala}", version), ("org.slf4j", "slf4j-nop", "1.7.36"),
                   ("ch.qos.reload4j", "reload4j", "1.2.25")]  # fmt: skip
    if version.startswith("2."):
        # Its own 3.4.14 cannot connect to a numeric address on Java 14 and newer (ZOOKEEPER-3779).
        coordinates.insert(0, ("org.apache.zookeeper", "zookeeper", "3.4.12"))
    return f"{cached(f'kafka_{scala}-{version}', lambda folder: fetch_jars(folder, coordinates))}/libs/*"


# --- Java programs ---------------------------------------------------------------------------------------------------


def compiled(source: Path, path: str) -> Path:
    """The classes of a source file and of those next to it that it uses, compiled once per text and class path."""
    texts = [beside.read_bytes() for beside in sorted(source.parent.glob("*.java"))]
    digest = hashlib.sha256(b"\0".join([*texts, path.encode()])).hexdigest()[:16]

    def compile_into(folder: Path) -> None:
        flags: list[str | Path] = [
            "-nowarn",
            "-Xlint:none",
            "-implicit:class",
            "-cp",
            path,
            "-sourcepath",
            source.parent,
            "-d",
            folder,
        ]
        run(["javac", *flags, source], f"compiling {source.name}")

    return cached(f"classes/{source.stem}-{digest}", compile_into)


def command(program: Path | str, *arguments: str, path: str, options: Sequence[str] = ()) -> list[str]:
    """The command line that runs a class, or the class of a source file."""
    if isinstance(program, Path):
        path = f"{compiled(program, path)}{os.pathsep}{path}"
        program = program.stem
    return ["java", "-Xmx256M", *JVM, *options, "-cp", path, program, *arguments]


def java(program: Path | str, *arguments: str, version: str = NEWEST, path: str | None = None) -> Output:
    """Run a class, or a Java source file, with the jars of a release (or another class path) to its end."""
    words = command(program, *arguments, path=path or classpath(version), options=logging_options(version))
    return run(words, f"java {program}")


def logging_options(version: str) -> list[str]:
    folder = libs(version).parent
    if version.startswith("3."):
        return [f"-Dlog4j.configuration=file:{folder}/log4j.properties"]
    return [f"-Dlog4j2.configurationFile={folder}/log4j2.xml"]


class Tools:
    """A JVM that runs one command line tool of a release after the other (compat/java/Tools.java)."""

    def __init__(self, version: str) -> None:
        if version.startswith("2."):  # the last tools that write to ZooKeeper
            words = command(SOURCES / "Tools.java", path=scala_classpath(version, "2.12"))
        else:
            words = command(SOURCES / "Tools.java", path=classpath(version), options=logging_options(version))
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def run(self, words: Sequence[str], timeout_s: float = TIMEOUT_S) -> Output:
        encoded = [word.encode() for word in words]
        self._requests.write(struct.pack(">i", len(encoded)))
        for word in encoded:
            self._requests.write(struct.pack(">i", len(word)) + word)
        self._requests.flush()
        if not select.select([self._answers], [], [], timeout_s)[0]:
            self.close()
            raise JudgeError(f"{' '.join(words)} gave no answer within {timeout_s} s")
        status = self._int()
        out, err = (self._answers.read(self._int()).decode(errors="replace") for _ in range(2))
        return Output(status, out, err)

    def _int(self) -> int:
        data = self._answers.read(4)
        if len(data) < 4:
            raise JudgeError(f"the JVM of the tools ended with status {self._process.wait()}")
        (number,) = struct.unpack(">i", data)
        assert isinstance(number, int)
        return number

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._requests.close()
        self._answers.close()


_tools: dict[str, Tools] = {}


def tool(name: str, *arguments: str, version: str = NEWEST, stdin: str = "", check: bool = True) -> Output:
    """Run one of Apache Kafka's command line tools by its class name; with `check` a failure is an error."""
    tools = _tools.get(version)
    if tools is None or not tools.alive:
        tools = _tools[version] = Tools(version)
        atexit.register(tools.close)
    output = tools.run([name, stdin, *arguments])
    if check and output.status:
        raise JudgeError(f"{name} {' '.join(arguments)} ended with {output.status}:\n{output.out}\n{output.err}")
    return output


# --- brokers ---------------------------------------------------------------------------------------------------------


def answers(port: int) -> bool:
    """Whether a broker on this port answers ApiVersions v0 and lists itself in Metadata v1."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection, connection.makefile("rwb") as file:
            for key, version, body in ((18, 0, b""), (3, 1, struct.pack(">i", 0))):
                message = struct.pack(">hhih", key, version, 1, -1) + body
                file.write(struct.pack(">i", len(message)) + message)
                file.flush()
                (size,) = struct.unpack(">i", file.read(4))
                answer = file.read(size)
            (brokers,) = struct.unpack_from(">i", answer, 4)
            return bool(brokers > 0)
    except (OSError, struct.error):
        return False


def until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, timeout_s: float = TIMEOUT_S
) -> float:
    """Poll until ready; if the process ends or time is up, fail and show its log."""
    started = time.monotonic()
    while not ready():
        passed = time.monotonic() - started
        if process.poll() is not None or passed > timeout_s:
            state = f"ended with {process.returncode}" if process.poll() is not None else f"not ready in {timeout_s} s"
            raise JudgeError(f"{log.name}: {state}\n{log.read_text(errors='replace')[-6000:]}")
        time.sleep(0.02)
    return time.monotonic() - started


def stop_process(process: subprocess.Popen[bytes], *, kill: bool = False, timeout_s: float = 60.0) -> int:
    """End a process by its id: SIGTERM first, then SIGKILL."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


# Tests write records with old timestamps, and retention must not delete them before a slow machine reads them.
KEEPING = {"log.retention.check.interval.ms": "86400000"}


class Closing(ABC):
    """Started by `with` and closed at its end, also when the start fails."""

    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Kafka(Closing):
    """Apache Kafka, one node on loopback: started by `start` or `with`, may be stopped and started again."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        version: str = NEWEST,
        settings: Mapping[str, str] | None = None,
        cluster_id: str = CLUSTER_ID,
        node_id: int = 1,
        zookeeper: str | None = None,
        java: Sequence[str] | None = None,
    ) -> None:
        """`zookeeper` is the address of a running one, which may be shared; `java` are JVM options."""
        self.version = version
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="kafka-"))
        self.log_dir = self.folder / "data"
        self.port, self._side_port = free_ports(2)
        self._settings = {**KEEPING, **(settings or {})}
        self._shared_zookeeper = zookeeper
        self._java = java
        self._process: subprocess.Popen[bytes] | None = None
        self._zookeeper: subprocess.Popen[bytes] | None = None

    @property
    def kraft(self) -> bool:
        return not self.version.startswith("3.")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def zookeeper(self) -> str:
        assert not self.kraft
        return self._shared_zookeeper or f"127.0.0.1:{self._side_port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The broker's log so far: warnings and errors."""
        return (self.folder / "server.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        if self.kraft and not (self.log_dir / "meta.properties").exists():
            tool(
                "kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(properties), version=self.version
            )
        if not self.kraft:
            self.start_zookeeper()
        log = self.folder / "server.log"
        java = class_archive(self.version) if self._java is None else self._java
        self._process = self._spawn(["kafka.Kafka", str(properties)], log, java)
        until(lambda: answers(self.port), self._process, log)
        return self

    def start_zookeeper(self) -> None:
        """Start ZooKeeper alone, so that a test may write znodes before the broker reads them."""
        if self._zookeeper is not None or self._shared_zookeeper is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "zookeeper.properties"
        properties.write_text(
            f"dataDir={self.folder / 'zookeeper'}\nclientPort={self._side_port}\nclientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\nadmin.enableServer=false\ntickTime=500\nforceSync=no\n"
        )
        log = self.folder / "zookeeper.log"
        name = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._zookeeper = self._spawn([name, str(properties)], log)
        until(lambda: listening(self._side_port), self._zookeeper, log)

    def _spawn(self, words: Sequence[str], log: Path, java: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        options = [*logging_options(self.version), "-Dzookeeper.forceSync=no", *java]
        output: IO[bytes]
        with log.open("ab") as output:
            return subprocess.Popen(
                command(words[0], *words[1:], path=classpath(self.version), options=options),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _properties(self) -> dict[str, str]:
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        properties = {
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": str(self.log_dir),
            "num.network.threads": "2",
            "num.io.threads": "2",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        if self.kraft:
            properties |= {
                "metadata.max.idle.interval.ms": "0",  # otherwise an idle broker writes two records each second
                "process.roles": "broker,controller",
                "node.id": str(self.node_id),
                "listeners": f"{listener},CONTROLLER://127.0.0.1:{self._side_port}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "controller.quorum.voters": f"{self.node_id}@127.0.0.1:{self._side_port}",
            }
        else:
            properties |= {"broker.id": str(self.node_id), "zookeeper.connect": self.zookeeper}
        return properties | self._settings

    def stop(self, *, kill: bool = False) -> None:
        """Stop the broker (and ZooKeeper after it); its folder stays for another start."""
        for process in (self._process, self._zookeeper):
            if process is not None:
                stop_process(process, kill=kill)
        self._process = self._zookeeper = None

    def close(self) -> None:
        self.stop()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)


@cache
def class_archive(version: str) -> Sequence[str]:
    """Java options that make a broker load its classes from an archive (class data sharing) instead of the jars.

    A start costs 2 s of CPU instead of 3. A broker that starts and stops creates the archive once. A JVM that cannot
    use it runs without it.
    """
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    identity = hashlib.sha256(f"{java} {libs(version)}".encode()).hexdigest()[:16]

    def make(folder: Path) -> None:
        draft = folder / "draft.jsa"
        with Kafka(version=version, java=[f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:disable"]) as kafka:
            assert kafka._process is not None
            if stop_process(kafka._process) != -signal.SIGKILL and draft.exists():
                draft.rename(folder / "classes.jsa")

    folder = cached(f"kafka-classes-{version}-{identity}", make)
    return [f"-XX:SharedArchiveFile={folder / 'classes.jsa'}", "-Xlog:disable"]


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
