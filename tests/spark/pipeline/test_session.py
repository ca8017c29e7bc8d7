"""What a session is started with."""

from pathlib import Path

import pytest

from ottla.spark.pipeline.session import sockets


@pytest.mark.parametrize(("length", "used"), [(1, True), (53, True), (54, False), (200, False)])
def test_sockets_lie_in_the_folder_of_the_run_if_their_path_is_short_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, used: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("x" * length)
    folder.mkdir()
    found = sockets(folder)
    assert bool(found) == used == (folder / "sockets").exists()
    if used:
        assert found["spark.python.unix.domain.socket.dir"] == f"{folder}/sockets"
        assert (folder / "sockets").stat().st_mode & 0o777 == 0o700
        (folder / "sockets" / ".left.sock").touch()
        assert sockets(folder) == found
        assert not list((folder / "sockets").iterdir()), "what a killed run left is gone"
