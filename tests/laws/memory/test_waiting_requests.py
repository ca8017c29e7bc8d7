"""While the records of a coordinator cannot be committed, its clients retry again and again.

A request that no client waits for any more is not kept.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

from coord.test_runtime import Counter
from replica.making import Host, state
from replica.test_partition import play
from waiting import until

from ottla.clock import SystemClock
from ottla.coord.runtime import Runtime
from ottla.errors import BrokerError, ErrorCode
from ottla.replica.partition import COMMITS_KEPT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ROUNDS, TOGETHER = 5, COMMITS_KEPT


def test_requests_that_waited_too_long_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state())  # its followers never fetch
        runtime: Runtime[Counter] = Runtime(lambda _: Counter(), SystemClock(), patience_s=0.01)
        runtime.on_election(partition)
        await until(lambda: not runtime.loading)
        decided: list[weakref.ref[Decided]] = []
        for _ in range(ROUNDS):
            asked = []
            for _ in range(TOGETHER):
                made = Decided()
                decided.append(weakref.ref(made))
                asked.append(runtime.run(0, lambda m, token, _, made=made: m.add(b"a", token) if made else None))
                del made
            codes = await asyncio.gather(*asked, return_exceptions=True)
            assert {one.code for one in codes if isinstance(one, BrokerError)} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
            del asked, codes
        assert len(partition._commits) <= 2 * COMMITS_KEPT
        assert sum(not future.done() for _, _, future in partition._commits) == 0
        host.fetch(partition, 1, partition.log.end)
        host.fetch(partition, 2, partition.log.end)
        assert runtime.peek(0).counts == {b"a": ROUNDS * TOGETHER}, "what was decided stays decided"
        await runtime.stop()
        gc.collect()
        assert sum(one() is not None for one in decided) <= 1

    play(tmp_path, story)


class Decided:
    """Something that a request holds."""
