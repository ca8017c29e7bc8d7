"""A new log does not touch the checkpoints of its directory unless they contain its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from log.making import TOPIC_ID, a_store, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.log.log import Log


def untouched() -> Iterator[Log]:
    raise AssertionError("the other logs are looked at")
    yield


def test_a_name_that_is_new_makes_nobody_look_at_the_other_logs(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    log = store.create("orders", 0, TOPIC_ID, settings(), 0)
    ledger = log.directory.ledger
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        ledger.write(name, [log])
    ledger.make_way(("new", 0), untouched())
    assert ledger.plan_way({("new", 0), ("new", 1)}, untouched()) == []
