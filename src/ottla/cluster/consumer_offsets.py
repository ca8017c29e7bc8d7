"""Committed offsets of Kafka 0.8 consumers: decimal numbers in the metadata store, one node per partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.metadata_store import NodeExists, NoNode, StoreError
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from ottla.cluster.metadata_store import MetadataStore


class ConsumerOffsets:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def get(self, group: str, topic: str, index: int) -> int | None:
        _check(group)
        try:
            return int((await self._store.get(znodes.consumer_offset_path(group, topic, index))).data)
        except NoNode:
            return None
        except (StoreError, ValueError) as error:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the store has no such offset: {error}") from error

    async def set(self, group: str, topic: str, index: int, offset: int) -> None:
        _check(group)
        path = znodes.consumer_offset_path(group, topic, index)
        try:
            try:
                await self._store.set(path, str(offset).encode())
            except NoNode:
                await self._create(path, str(offset).encode())
        except StoreError as error:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the store takes no offset: {error}") from error

    async def _create(self, path: str, data: bytes) -> None:
        """Create the node and its missing parents. Another client may be doing the same."""
        names = path.split("/")
        for depth in range(2, len(names)):
            try:
                await self._store.create("/".join(names[:depth]))
            except NodeExists:
                continue
        try:
            await self._store.create(path, data)
        except NodeExists:
            await self._store.set(path, data)


def _check(group: str) -> None:
    """The name of a group must be valid in a path."""
    if any(name in ("", ".", "..") for name in group.split("/")):
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)
