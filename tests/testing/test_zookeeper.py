"""The launcher of a real ZooKeeper."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

from ottla.testing.zookeeper import ZooKeeperFailed, ZooKeeperServer, answers


def test_it_starts_stops_and_starts_again_in_its_place() -> None:
    with ZooKeeperServer() as server:
        folder, port = server.folder, server.port
        assert answers(port)
        server.stop()
        assert not answers(port)
        server.stop()
        server.start()
        assert (server.port, answers(port)) == (port, True)
        server.pause()
    assert not answers(port), "a paused one ends, too"
    assert not folder.exists()


STARTER = """
import os, sys
from ottla.testing.zookeeper import ZooKeeperServer
server = ZooKeeperServer().start()
print(server.pid, server.port, server.folder, flush=True)
os.kill(os.getpid(), 9)
"""


def test_it_does_not_outlive_who_started_it(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", STARTER], capture_output=True, text=True, env=environment, check=False
    )
    pid, port, _ = ended.stdout.split()
    assert ended.returncode == -9
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"process {pid} lives on")
    assert not answers(int(port))


def test_without_jars_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTTLA_ZOOKEEPER_JARS", str(tmp_path))
    with pytest.raises(ZooKeeperFailed, match=r"pip install ottla\[spark\]"):
        ZooKeeperServer(tmp_path).start()


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ZooKeeperFailed, match="needs Java"):
        ZooKeeperServer(tmp_path).start()


def test_a_server_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperFailed, match="did not start"):
        ZooKeeperServer(tmp_path, settings={"dataDir": "/proc/nowhere"}).start()
