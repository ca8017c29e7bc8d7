"""Values that lie in files and in the environment, and what is said when they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.client.failure import Failed
from ottla.client.secret import SIZE_MAX, refers, resolve

if TYPE_CHECKING:
    from pathlib import Path


def test_files_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text(" one \r\n\n")
    monkeypatch.setenv("TWO", " two\n")
    given = {"a.file": str(tmp_path / "a"), "b.env": "TWO", "c": "three"}
    assert refers(given)
    assert resolve(given) == {"a": " one ", "b": " two\n", "c": "three"}
    assert not refers({"file": "x", "env": "y", "file.name": "z"})


@pytest.mark.parametrize("other", ["a", "a.env"])
def test_one_secret_twice(other: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("SEEN")
    with pytest.raises(Failed, match="are both given: keep one"):
        resolve({"a.file": str(tmp_path / "a"), other: "PATH"})


def test_files_that_have_none(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "large").write_bytes(b"x" * (SIZE_MAX + 1))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for path, said in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (tmp_path / "empty", "the file is empty"),
        (tmp_path / "large", "larger than 1 MiB"),
        (tmp_path / "bytes", "UTF-8"),
        ("nul\0byte", "null byte"),
    ):
        with pytest.raises(Failed, match=said) as caught:
            resolve({"a.file": str(path)})
        assert "a.file=" in str(caught.value)


def test_variables_that_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(Failed, match="has no NOT_THERE"):
        resolve({"a.env": "NOT_THERE"})
