"""The console as a process: beside `ottla serve`, behind a token, and in front of hostile requests."""

from __future__ import annotations

import http.client
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from console.desk import Desk
from waiting import wait_until

from ottla.client.failure import Failed
from ottla.client.security import PLAIN
from ottla.console.actions import Actions
from ottla.console.history import MEMORY, History
from ottla.embed import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("console")
UPGRADE = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket&client_id=x&document_id=y&tab_id=z"


def status(url: str, path: str, headers: dict[str, str], method: str = "GET", body: bytes | None = None) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_serve_starts_a_console_that_ends_with_it() -> None:
    command = [sys.executable, "-m", "ottla", "serve", "--memory", "--port", "0", "--console", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        assert broker.stdout
        line = next(line for line in broker.stdout if line.startswith("Ottla console: "))
        url = line.split()[2]
        wait_until(lambda: answers(url))
        broker.terminate()
        broker.wait(60)
    wait_until(lambda: not answers(url))


def answers(url: str) -> bool:
    try:
        return status(url, "/", {}) == 200
    except OSError:
        return False


def test_hostile_requests_get_nothing(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a secret\n")
    with BrokerProcess() as broker, Desk(broker.bootstrap, tmp_path, "--token-file", str(tmp_path / "token")) as desk:
        ours = {"Authorization": "Bearer a secret"}
        origin = {"Origin": desk.url}
        assert status(desk.url, "/", ours) == 200
        assert status(desk.url, "/", {}) == 401
        assert status(desk.url, "/", {**ours, "Host": "evil.example"}) == 403
        assert status(desk.url, "/_nicegui_ws/socket.io/?EIO=4&transport=polling", {}) == 401
        assert status(desk.url, SOCKET, {**UPGRADE, **ours, "Origin": "http://evil.example"}) == 403
        assert status(desk.url, SOCKET, {**UPGRADE, **origin}) == 403
        assert status(desk.url, SOCKET, {**UPGRADE, **ours}) == 403, "no browser leaves the origin out"
        assert status(desk.url, SOCKET, {**UPGRADE, **ours, **origin}) == 101
        assert status(desk.url, "/login", origin, "POST", b"secret=" + b"x" * 100_000) == 401
        for path in (
            "/docs",
            "/openapi.json",
            "/topics/%00",
            "/topics/" + "x" * 5000,
            "/brokers/abc",
            "/../../etc/passwd",
        ):
            assert status(desk.url, path, ours) < 500, path
        assert "Traceback" not in desk.log, desk.log


def test_the_world_is_not_let_in_without_a_key() -> None:
    command = [sys.executable, "-m", "ottla", "console", "--listen", "0.0.0.0:0", "--bootstrap", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "anyone who can reach this address could use the console" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_console_that_only_reads_changes_nothing_whatever_its_pages_say() -> None:
    history = History(MEMORY)
    actions = Actions("127.0.0.1:1", PLAIN, history, allowed=False, changed=lambda: None)
    for change in (
        lambda: actions.create_topic("me", "t", 1, 1, {}),
        lambda: actions.delete_topic("me", "t"),
        lambda: actions.elect("me", None),
        lambda: actions.reassign("me", {}),
        lambda: actions.reset("me", "g", {}),
        lambda: actions.produce("me", "t", None, None, b"", ()),
        lambda: actions.abort("me", "x"),
        lambda: actions.set_option("me", 2, "t", "retention.ms", "1"),
    ):
        with pytest.raises(Failed, match="read-only"):
            change()
    assert not history.audit()
    history.close()
