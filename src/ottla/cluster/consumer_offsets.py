"""Offsets as consumers of the 0.8 era commit them: numbers in the metadata store, one node for each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.keeper import KeeperError, NodeExists, NoNode
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from ottla.cluster.keeper import Keeper


class ConsumerOffsets:
    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def get(self, group: str, topic: str, index: int) -> int | None:
        _check(group)
        try:
            return int((await self._keeper.get(znodes.consumer_offset_path(group, topic, index))).data)
        except NoNode:
            return None
        except (KeeperError, ValueError) as error:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the store has no such offset: {error}") from error

    async def set(self, group: str, topic: str, index: int, offset: int) -> None:
        _check(group)
        path = znodes.consumer_offset_path(group, topic, index)
        try:
            try:
                await self._keeper.set(path, str(offset).encode())
            except NoNode:
                await self._create(path, str(offset).encode())
        except KeeperError as error:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the store takes no offset: {error}") from error

    async def _create(self, path: str, data: bytes) -> None:
        """The node and whatever is missing above it; somebody else may be doing the same."""
        names = path.split("/")
        for depth in range(2, len(names)):
            try:
                await self._keeper.create("/".join(names[:depth]))
            except NodeExists:
                continue
        try:
            await self._keeper.create(path, data)
        except NodeExists:
            await self._keeper.set(path, data)


def _check(group: str) -> None:
    """A group's name must make a path."""
    if any(name in ("", ".", "..") for name in group.split("/")):
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)
