"""Work in threads: what cannot be begun is not counted as waiting."""

from __future__ import annotations

import asyncio

import pytest

from ottla.errors import BrokerError
from ottla.records.aside import Aside


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        here = Aside()
        assert await here.run(10, lambda: 7) == 7
        assert here._threads is not None

        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(here._threads, "submit", refuse)
            with pytest.raises(BrokerError, match="new thread"):
                here.run(10, lambda: 7)
        assert here._size == 0
        here._threads.shutdown()

    asyncio.run(scene())
