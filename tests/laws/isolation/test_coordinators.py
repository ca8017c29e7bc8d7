"""A coordinator retries when its log could not be read or a marker could not be written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from coord.test_runtime import Counter
from log.making import TOPIC_ID, a_store, settings
from waiting import until

from ottla.clock import SystemClock
from ottla.coord.runtime import Runtime
from ottla.log.log import Log
from ottla.replica.partition import Partition

if TYPE_CHECKING:
    from pathlib import Path

ERRORS = [OSError(24, "Too many open files"), MemoryError(), RuntimeError("nobody foresaw this")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", ["read", "finish_load"])
def test_a_load_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, place: str
) -> None:
    monkeypatch.setattr("ottla.coord.runtime.RETRY_S", 0)
    failures = [error, error]

    def fail_at(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def failing(*arguments: Any, **options: Any) -> Any:
            if failures:
                raise failures.pop()
            return method(*arguments, **options)

        monkeypatch.setattr(owner, name, failing)

    async def story() -> None:
        store = a_store(tmp_path)
        log = store.create("counts", 0, TOPIC_ID, settings(), 0)
        runtime = Runtime(lambda _: Counter(), SystemClock())
        partition = Partition("counts", 0, TOPIC_ID, log, 0)
        runtime.on_election(partition)
        await until(lambda: not runtime.loading)
        runtime.run(0, lambda machine, token, _: machine.add(b"a", token))
        fail_at(Log if place == "read" else Counter, place)
        runtime.on_resignation(0)
        runtime.on_election(partition)
        await until(lambda: not failures and not runtime.loading and list(runtime.machines()))
        assert runtime.peek(0).counts == {b"a": 1}
        await runtime.stop()

    asyncio.run(asyncio.wait_for(story(), 20))
