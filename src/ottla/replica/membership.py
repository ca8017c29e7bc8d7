"""The controller epoch and broker epoch as a member of a cluster knows them.

Requests from the controller are carried out one at a time, whichever connection they arrive on, and only those of the
newest controller: an older one may not know yet that it was replaced.

Anybody can connect to a broker and claim to be a newer controller; the real one would be rejected from then on. So an
epoch is accepted only when the store confirms it. The store is read only for a newer epoch, and without blocking
others.

A starting broker knows the topics from the store, but not their leaders until the controller sends them. Until then the
topics are `awaited`: clients must not be told that they do not exist. Nor must clients be told that there are no
brokers: they would forget those that they know.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.cluster.metadata_store import StoreError
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence

    from ottla.cluster.image import Broker

    ConfigReader = Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, str]]]]

UNCHECKED = -1
RETRY_S = 0.1
READS_MAX = 20  # our ZooKeeper server may briefly lag behind the controller's


class Membership:
    def __init__(
        self,
        broker_epoch: Callable[[], int],
        read_configs: ConfigReader,
        read_controller_epoch: Callable[[], Awaitable[int]] | None = None,
        list_topics: Callable[[], Awaitable[Container[str]]] | None = None,
    ) -> None:
        """`broker_epoch`: of this broker's current registration; `read_configs`: topic configs by name;
        `read_controller_epoch`: the epoch in the store; `list_topics`: the names that the store has now."""
        self.controller_epoch = 0
        self.lock = asyncio.Lock()
        self.awaited: dict[str, bytes] = {}  # topic ids by name
        self.brokers: Mapping[int, Broker] = {}  # those registered at the start, and this one
        self._read_configs = read_configs
        self._read_controller_epoch = read_controller_epoch
        self._list_topics = list_topics
        self._broker_epoch = broker_epoch

    async def verify(self, controller_epoch: int) -> None:
        """BrokerError when there has never been a controller with this epoch. Call it without the lock."""
        if self._read_controller_epoch is None:
            return
        reads = 0
        while controller_epoch > self.controller_epoch:
            try:
                if controller_epoch <= await self._read_controller_epoch():
                    return
                reads += 1
                if reads >= READS_MAX:
                    raise BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH, f"no controller of epoch {controller_epoch}")
            except StoreError:
                pass  # the store is not reachable: the epoch cannot be verified yet
            await asyncio.sleep(RETRY_S)

    async def check(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Whether a request may be carried out. NONE: yes, and from now on requests of older controllers may not.

        A request with a newer broker epoch is accepted: the controller may see our registration before we do. While our
        own epoch is unknown, this waits: the request may be meant for a former registration of this broker, which had
        records that are gone now.
        """
        while self._broker_epoch() < 0:  # noqa: ASYNC110  # registration provides no event
            await asyncio.sleep(RETRY_S)
        if broker_epoch != UNCHECKED and broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def note_topics(self, names: Iterable[str]) -> None:
        """The controller has sent the state of these topics."""
        for name in names:
            self.awaited.pop(name, None)

    async def read_configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Topic configs. Waits while the store is not reachable: with other configs a log might lose records."""
        while True:
            try:
                return await self._read_configs(names)
            except StoreError:
                await asyncio.sleep(RETRY_S)

    async def find_deleted(self, names: Sequence[str]) -> Sequence[str]:
        """Which of the topics that the controller does not know were deleted.

        It does not know a topic with nodes that it cannot read either: somebody has edited them. Such a topic must not
        lose what is deleted together with a topic, such as committed offsets.
        """
        if not names or self._list_topics is None:
            return names
        present = await self._list_topics()
        return [name for name in names if name not in present]
