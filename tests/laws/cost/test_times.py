"""A lookup by timestamp skips segments that are too old without reading them, however many there are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from log.making import NOW_MS, a_log, append, produced

from ottla.log.index import TimeIndex
from ottla.log.segment import Segment

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SEGMENTS = 30


def test_only_the_segment_that_has_the_time_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(tmp_path)
    for number in range(SEGMENTS):
        append(log, produced(2, timestamp=NOW_MS + number))
        log.roll(NOW_MS)
    calls: Counter[str] = Counter()

    def watch(kind: type, name: str) -> None:
        method = getattr(kind, name)

        def counted(self: object, *arguments: object) -> object:
            calls[name] += 1
            return method(self, *arguments)

        monkeypatch.setattr(kind, name, counted)

    watch(Segment, "largest")
    watch(Segment, "spans")
    watch(TimeIndex, "floor")
    found = log.offset_for_time(NOW_MS + SEGMENTS - 1)
    assert found is not None
    assert found.offset == 2 * (SEGMENTS - 1)
    assert calls == {"spans": 1, "floor": 1}
