"""A produce waits for other brokers, perhaps for days. When its client has disconnected, nothing of it is kept."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING

from replica.making import Host, state
from replica.test_partition import play

from ottla.handlers.acknowledging import Acknowledgement
from ottla.replica.partition import COMMITS_KEPT
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse

if TYPE_CHECKING:
    from pathlib import Path

DAYS_MS = 0x7FFFFFFF


def test_what_a_client_waited_for_goes_with_the_client(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        partition = host.assign(state())
        end = host.append(partition).last + 1
        answers = []
        for _ in range(5 * COMMITS_KEPT):
            waited = partition.wait_for_commit(end)
            assert waited is not None
            result = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
            answer = ProduceResponse(responses=[])
            answers.append(weakref.ref(answer))
            Acknowledgement(answer, [(waited, result)], DAYS_MS).future.cancel()
            del answer, waited
            await asyncio.sleep(0)
        assert len(partition._commits) <= COMMITS_KEPT
        await asyncio.sleep(0)
        gc.collect()
        assert sum(one() is not None for one in answers) < COMMITS_KEPT

    play(tmp_path, story)
