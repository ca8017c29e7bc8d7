"""Who runs in a folder: locks of real processes, also of one that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.client.failure import Failed
from ottla.spark.runner import state
from ottla.spark.runner.state import FolderInUse, QueryProgress, RunState, Tenure

HOLDER = """
import os, socket, sys
from pathlib import Path
from ottla.spark.runner.state import RunState, Tenure
tenure = Tenure.take(Path(sys.argv[1]))
tenure.write(RunState("visits", "running", os.getpid(), socket.gethostname(), 1.0))
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    assert process.stdout.readline() == b"taken\n"
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        pipe.close()


def test_two_runs_do_not_share_a_folder(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with pytest.raises(
        FolderInUse, match=rf"^visits is already running in .* \(process {holder.pid} on .*\): stop it with"
    ):
        Tenure.take(tmp_path)
    now = state.status(tmp_path)
    assert now
    assert now.state == state.RUNNING


def test_a_run_that_was_killed_is_told_from_one_that_runs(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    now = state.status(tmp_path)
    assert now
    assert (now.state, now.name) == (state.KILLED, "visits")
    Tenure.take(tmp_path).release()


def test_a_child_that_keeps_the_lock_keeps_others_out_for_a_while(
    holder: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Java does, which lives a moment longer than a killed driver."""
    holder.kill()
    holder.wait()
    lock = os.open(tmp_path / state.LOCK, os.O_RDWR)
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; fcntl.flock(int(sys.argv[1]), 2); print(1, flush=True); sys.stdin.read()",
            str(lock),
        ],
        pass_fds=[lock],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    os.close(lock)
    assert child.stdout
    child.stdout.readline()
    monkeypatch.setattr(state, "ENDING_S", 0.3)
    with pytest.raises(FolderInUse):
        Tenure.take(tmp_path)
    monkeypatch.setattr(state, "ENDING_S", 30.0)
    child.communicate()  # its input ends, and so does it
    Tenure.take(tmp_path).release()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    tenure = Tenure.take(tmp_path)
    written = RunState(
        "v", state.FAILED, 7, "here", 5.0, "b:1", {"a": "1"}, "because", (QueryProgress("q", 3, 10, 2.5, None),)
    )
    tenure.write(written)
    assert state.read(tmp_path) == written
    tenure.release()


def test_an_old_wish_to_stop_does_not_stop_the_next_run(tmp_path: Path) -> None:
    state.ask_to_stop(tmp_path)
    Tenure.take(tmp_path).release()
    assert not (tmp_path / state.STOP).exists()


def test_whoever_waits_for_the_end_waits_no_longer_than_asked(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert not state.wait_for_end(tmp_path, 0.2)
    holder.kill()
    assert state.wait_for_end(tmp_path, 30)


def test_damage_is_told(tmp_path: Path) -> None:
    (tmp_path / state.RUN).write_text('{"name": 1')
    with pytest.raises(Failed, match=r"run.json is damaged: remove it"):
        state.status(tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match="cannot be used"):
        Tenure.take(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"OTTLA_PIPELINES": "/a/b", "XDG_STATE_HOME": "/c"}, Path("/a/b")),
        ({"XDG_STATE_HOME": "/c"}, Path("/c/ottla/pipelines")),
        ({}, Path.home() / ".local" / "state" / "ottla" / "pipelines"),
    ],
)
def test_where_runs_live(environment: dict[str, str], expected: Path) -> None:
    assert state.default_folder(environment) == expected


def test_status_of_nothing(tmp_path: Path) -> None:
    assert state.status(tmp_path) is None
    assert state.status(tmp_path / "nowhere") is None
    assert state.wait_for_end(tmp_path, 60)
