"""Producer ids: unique across blocks, brokers and restarts."""

import asyncio
from pathlib import Path

from ottla.clock import SystemClock
from ottla.cluster.image import EMPTY, NO_LEADER, Broker
from ottla.cluster.metadata import Metadata
from ottla.cluster.peers import PeerError, UnsupportedError
from ottla.cluster.producer_ids import BLOCK_SIZE, ControllerBlocks, ProducerIds, take_block
from ottla.cluster.sqlite_store import SqliteStore
from ottla.config import load
from ottla.errors import ErrorCode
from ottla.wire.messages.transactions import AllocateProducerIdsRequest, AllocateProducerIdsResponse


def test_ids_are_unique_over_blocks_brokers_and_restarts(tmp_path: Path) -> None:
    async def scene() -> None:
        taken: list[int] = []
        for _ in range(2):
            store = SqliteStore(str(tmp_path / "metadata"))
            await store.open()
            one, other = ProducerIds(store, 1), ProducerIds(store, 2)
            taken += await asyncio.gather(*(source.take() for _ in range(BLOCK_SIZE + 10) for source in (one, other)))
            await store.close()
        assert len(set(taken)) == len(taken) == 4 * (BLOCK_SIZE + 10)
        assert min(taken) == 0

    asyncio.run(scene())


class Controller:
    """Broker 2, which allocates blocks for others, in the same store."""

    def __init__(self, store: SqliteStore) -> None:
        self.asked: list[AllocateProducerIdsRequest] = []
        self.trouble: Exception | None = None
        self.code = ErrorCode.NONE
        self._store = store

    async def ask(
        self, broker: Broker, request: AllocateProducerIdsRequest, **how: object
    ) -> AllocateProducerIdsResponse:
        assert (broker.id, how["client_id"]) == (2, "1")
        self.asked.append(request)
        if self.trouble is not None:
            raise self.trouble
        if self.code is not ErrorCode.NONE:
            return AllocateProducerIdsResponse(error_code=self.code, producer_id_start=-1, producer_id_len=0)
        start, end = await take_block(self._store, request.broker_id)
        return AllocateProducerIdsResponse(error_code=0, producer_id_start=start, producer_id_len=end - start)

    def close_channel(self, broker_id: int, channel: str) -> None: ...


def test_the_controller_is_asked_and_is_no_obstacle(tmp_path: Path) -> None:
    async def scene() -> None:
        store = SqliteStore(str(tmp_path / "metadata"))
        await store.open()
        metadata = Metadata(load({"log.dirs": str(tmp_path)}), SystemClock(), node_id=1)
        brokers = {one: Broker(one, {}, None, one) for one in (1, 2)}
        metadata.image = EMPTY._replace(brokers=brokers, controller_id=2)
        controller = Controller(store)
        ids = ProducerIds(store, 1, ControllerBlocks(metadata, controller, lambda: 77))

        async def take_many() -> list[int]:
            return await asyncio.gather(*(ids.take() for _ in range(BLOCK_SIZE)))

        taken = await take_many()
        assert [(one.broker_id, one.broker_epoch) for one in controller.asked] == [(1, 77)]
        for trouble, code in [
            (PeerError("silent"), ErrorCode.NONE),
            (UnsupportedError("old"), ErrorCode.NONE),
            (None, ErrorCode.NOT_CONTROLLER),
            (None, ErrorCode.STALE_BROKER_EPOCH),
        ]:
            controller.trouble, controller.code = trouble, code
            taken += await take_many()
        assert len(controller.asked) == 5
        for controller_id in (1, NO_LEADER, 9):
            metadata.image = metadata.image._replace(controller_id=controller_id)
            taken += await take_many()
        assert len(controller.asked) == 5, "nobody else is the controller"
        assert sorted(taken) == list(range(8 * BLOCK_SIZE))
        await store.close()

    asyncio.run(scene())
