"""What a member of a cluster knows of who commands it: the controller's epoch, and its own.

Requests of a controller are carried out one after the other, whichever connection they come over, and only those of the
newest controller: an older one may not know yet that it was replaced.

Anybody can dial a broker and claim to be a newer controller. Then the true one would be refused from there on, so an
epoch is believed when the store knows of it. That is read without holding up others, and only for a newer epoch.

A broker that starts knows from the store which topics there are, and nothing of their leaders until the controller
tells it. Until then they are `awaited`: clients must not hear that they do not exist. Nor must they hear that there are
no brokers: they would forget those that they know.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.cluster.metadata_store import StoreError
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from ottla.cluster.image import Broker

    ConfigReader = Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, str]]]]

UNCHECKED = -1
RETRY_S = 0.1
READS_MAX = 20  # the server of the store that we are connected to may be behind the controller's for a moment


class Membership:
    def __init__(
        self,
        broker_epoch: Callable[[], int],
        read_configs: ConfigReader,
        read_controller_epoch: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """`broker_epoch`: of this broker's present registration; `read_configs`: the options of topics, by name;
        `read_controller_epoch`: as the store knows it."""
        self.controller_epoch = 0
        self.lock = asyncio.Lock()
        self.awaited: dict[str, bytes] = {}  # by name: the topic's id
        self.brokers: Mapping[int, Broker] = {}  # that were registered at the start, and this one
        self._read_configs = read_configs
        self._read_controller_epoch = read_controller_epoch
        self._broker_epoch = broker_epoch

    async def verify(self, controller_epoch: int) -> None:
        """BrokerError when there has never been a controller of this epoch. To be called without the lock."""
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
                pass  # it is away, and nothing of a newer controller can be told yet
            await asyncio.sleep(RETRY_S)

    async def check(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Whether a request may be carried out. NONE: it may, and requests of older controllers may no longer.

        A request for a later life of this broker is for us: the controller may know of our registration before we do.
        Before we know, nobody can tell for which life it is: one of a former life may be meant, which had records that
        this one has not.
        """
        while self._broker_epoch() < 0:  # noqa: ASYNC110  # who registers has no event to offer
            await asyncio.sleep(RETRY_S)
        if broker_epoch != UNCHECKED and broker_epoch < self._broker_epoch():
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE

    def note_topics(self, names: Iterable[str]) -> None:
        """The controller has told of these topics."""
        for name in names:
            self.awaited.pop(name, None)

    async def read_configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """The options of topics. While the store is away this waits: with other options a log might lose records."""
        while True:
            try:
                return await self._read_configs(names)
            except StoreError:
                await asyncio.sleep(RETRY_S)
