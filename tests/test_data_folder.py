import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import data_folder
from ottla.data_folder import FolderInUse, FolderLocks, default_folder, memory_folder, remove

HOLD = """
import sys
from pathlib import Path
from ottla.data_folder import FolderLocks
locks = FolderLocks([Path(sys.argv[1])])
print("held", flush=True)
sys.stdin.read()
"""
MAKE = "from ottla.data_folder import memory_folder; print(memory_folder(), flush=True); import sys; sys.stdin.read()"


def test_the_default_folder_is_the_one_documented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder({}) == tmp_path / ".local" / "share" / "ottla"
    assert default_folder({"XDG_DATA_HOME": "/x"}) == Path("/x/ottla")
    assert default_folder({"XDG_DATA_HOME": "/x", "OTTLA_DATA": "~/mine"}) == tmp_path / "mine"


def test_a_folder_has_one_broker(tmp_path: Path) -> None:
    locks = FolderLocks([tmp_path])
    with pytest.raises(FolderInUse, match="in use by another broker"):
        FolderLocks([tmp_path])
    locks.release()
    FolderLocks([tmp_path]).release()


def test_a_folder_held_by_another_process_is_refused_until_it_dies(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(FolderInUse):
        FolderLocks([tmp_path])
    holder.kill()
    holder.communicate()
    FolderLocks([tmp_path]).release()


def test_when_one_of_several_folders_is_taken_none_is_kept(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    taken = FolderLocks([second])
    with pytest.raises(FolderInUse):
        FolderLocks([first, second])
    FolderLocks([first]).release()
    taken.release()


def test_a_broken_folder_does_not_keep_the_others_from_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    good, bad = tmp_path / "good", tmp_path / "file" / "bad"
    locks = FolderLocks([bad, good])
    with pytest.raises(FolderInUse):
        FolderLocks([good])
    locks.release()
    with pytest.raises(OSError, match="Not a directory"):
        FolderLocks([bad])


def test_a_folder_in_memory_is_removed_with_what_is_in_it() -> None:
    made = memory_folder()
    (made / "file").write_text("text")
    remove(made)
    assert not made.exists()


def test_what_a_killed_process_left_in_memory_the_next_one_removes() -> None:
    other = subprocess.Popen([sys.executable, "-c", MAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout
    left = Path(other.stdout.readline().strip())
    mine = memory_folder()
    assert left.exists(), "its process is alive"
    other.send_signal(signal.SIGKILL)
    other.communicate()
    remove(memory_folder())
    assert not left.exists()
    assert mine.exists(), "this process is alive"
    remove(mine)


def test_another_users_process_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert data_folder.is_alive(1)
