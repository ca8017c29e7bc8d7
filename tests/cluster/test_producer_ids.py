"""Producer ids: unique over blocks, brokers and restarts."""

import asyncio
from pathlib import Path

from ottla.cluster.embedded import Embedded
from ottla.cluster.producer_ids import BLOCK_SIZE, ProducerIds


def test_ids_are_unique_over_blocks_brokers_and_restarts(tmp_path: Path) -> None:
    async def scene() -> None:
        taken: list[int] = []
        for _ in range(2):
            keeper = Embedded(str(tmp_path / "metadata"))
            await keeper.open()
            one, other = ProducerIds(keeper, 1), ProducerIds(keeper, 2)
            taken += await asyncio.gather(*(source.take() for _ in range(BLOCK_SIZE + 10) for source in (one, other)))
            await keeper.close()
        assert len(set(taken)) == len(taken) == 4 * (BLOCK_SIZE + 10)
        assert min(taken) == 0

    asyncio.run(scene())
