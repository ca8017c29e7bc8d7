"""A real schema registry for tests: Apicurio Registry from Maven, with its Confluent-compatible interface.

url = registries.url()                 one server for this process, in memory, stopped at its end
registries.fresh("orders-value")       a subject that no other test has
with registries.Gate(...) as gate      the same server behind TLS and a password, counting what is asked
registries.Canned("http://canned")     no server at all: what is put into its answers
with registries.Fake(...) as fake      a server that answers everything with the same bytes
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import itertools
import ssl
import subprocess
import tempfile
import threading
import urllib.request
from base64 import b64encode
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import judge

from ottla.spark.values import Registry

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

VERSION: Final = "3.0.9"  # the last that runs on Java 17
START_S: Final = 120.0
CONFLUENT: Final = "/apis/ccompat/v7"
numbers = itertools.count()


def fresh(subject: str) -> str:
    return f"t{next(numbers)}-{subject}"


@cache
def application() -> Path:
    """The jar that starts the registry, beside its libraries."""

    def fill(folder: Path) -> None:
        coordinate = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        pom = folder / "pom.xml"
        pom.write_text(judge.POM.format(""))
        goal = ["dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={folder}"]
        judge.run(["mvn", "-B", "-q", "-f", pom, *goal], f"fetching {coordinate} with Maven")
        archive = folder / f"apicurio-registry-app-{VERSION}-all.tar.gz"
        judge.run(["tar", "xzf", archive, "-C", folder], f"unpacking {archive.name}")
        archive.unlink()

    return judge.cached(f"apicurio-{VERSION}", fill) / f"apicurio-registry-app-{VERSION}-runner.jar"


@cache
def url() -> str:
    (port,) = judge.free_ports(1)
    folder = tempfile.TemporaryDirectory(prefix="ottla-registry-")
    log = Path(folder.name) / "registry.log"
    options = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["java", "-Xmx384M", *judge.JVM, *options, "-jar", application()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder.name,
        )
    atexit.register(folder.cleanup)
    atexit.register(judge.stop_process, process)
    base = f"http://127.0.0.1:{port}{CONFLUENT}"
    judge.until(lambda: answers(f"{base}/subjects"), process, log, START_S)
    return base


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""
    authority, key = folder / "registry.pem", folder / "registry.key"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=registry"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(authority), "-keyout", str(key)]
    judge.run(words, "making a certificate")
    return authority, key


@dataclass(frozen=True, repr=False)
class Canned(Registry):
    answers: dict[str, Any] = field(default_factory=dict, compare=False)
    asked: list[str] = field(default_factory=list, compare=False)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        self.asked.append(f"{method} {path}")
        found: dict[str, Any] = self.answers.get(path, {})
        return found


class Server:
    """A server on loopback, in a thread of the test."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.netloc = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class Fake(Server):
    """Answers everything with the same bytes, head and body."""

    def __init__(self, answer: bytes) -> None:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.asked.append(f"{self.command} {self.path}")
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                with contextlib.suppress(OSError):  # who asked has heard enough
                    self.wfile.write(answer)

            do_POST = do_GET

            def log_message(self, format: str, *values: object) -> None:
                """Not on the test's output."""

        super().__init__(Handler)


class Gate(Server):
    """A proxy for the registry: asks for a password, uses TLS, counts requests, and forwards them."""

    def __init__(self, user: str = "", password: str = "", tls: tuple[Path, Path] | None = None) -> None:
        self._expected = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}" if user else None
        super().__init__(self._handler())
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://{self.netloc}{CONFLUENT}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gate, behind = self, urlsplit(url())

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gate.asked.append(f"{self.command} {self.path.removeprefix(CONFLUENT)}")
                if gate._expected not in (None, self.headers["Authorization"]):
                    self.answer(401, b'{"error_code": 401, "message": "Unauthorized"}')
                    return
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                connection = http.client.HTTPConnection(behind.netloc, timeout=30)
                connection.request(self.command, self.path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                self.answer(answer.status, answer.read())
                connection.close()

            do_POST = do_GET

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *values: object) -> None:
                """Not on the test's output."""

        return Handler
