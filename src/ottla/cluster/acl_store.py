"""The access control lists of a cluster in its metadata store: reads, follows and changes them.

Every broker may change them. It writes the node of the resource with the version that it has read, notifies the others
with a notice (`notices.py`), and applies the change itself before it answers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.cluster.metadata_store import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    StoreError,
    make_nodes,
)
from ottla.cluster.notices import MALFORMED, Notices
from ottla.errors import BrokerError, ErrorCode
from ottla.security.acl import (
    LITERAL_CHANGES,
    LITERAL_ROOT,
    PREFIXED_CHANGES,
    PREFIXED_ROOT,
    Resource,
    decode_change,
    decode_entries,
    decode_path,
    encode_change,
    encode_entries,
    label,
)
from ottla.steps import Steps
from ottla.wire.access import ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clock import Clock
    from ottla.cluster.metadata_store import MetadataStore, Op
    from ottla.security.acl import AclEntry
    from ottla.security.authorizer import Authorizer

ATTEMPTS_MAX: Final = 20  # of one write, when other brokers write the same resource
BACKOFF_S: Final = 0.01
CHANGES: Final = (LITERAL_CHANGES, PREFIXED_CHANGES)
KINDS: Final = tuple(label(kind) for kind in ResourceType if kind not in (ResourceType.UNKNOWN, ResourceType.ANY))
PARENTS: Final = (
    *(LITERAL_ROOT, "/kafka-acl-extended", PREFIXED_ROOT, *CHANGES),
    *(f"{root}/{kind}" for root in (LITERAL_ROOT, PREFIXED_ROOT) for kind in KINDS),
)


class AclStore:
    def __init__(self, store: MetadataStore, authorizer: Authorizer, clock: Clock, *, shared: bool) -> None:
        self._store = store
        self._authorizer = authorizer
        self._writing = asyncio.Lock()  # one change of this broker at a time
        self._notices: Notices[Resource] | None = None
        if shared:  # other brokers write and follow the same store
            self._notices = Notices(
                store,
                clock,
                Steps("ottla.acl"),
                CHANGES,
                what="changed access control lists",
                decode=decode_change,
                read=self._read_some,
                read_all=self._read_all,
            )

    async def start(self) -> None:
        """Read everything, and follow changes."""
        await make_nodes(self._store, PARENTS)
        await (self._read_all() if self._notices is None else self._notices.start())

    async def _read_all(self) -> None:
        found: dict[Resource, frozenset[AclEntry]] = {}
        for root in (LITERAL_ROOT, PREFIXED_ROOT):
            for path, node in (await self._store.tree(root)).items():
                resource = decode_path(path)
                if resource is not None:
                    found[resource] = decode_or_stop(path, node.data)
        self._authorizer.replace(found)

    async def _read_some(self, resources: Iterable[Resource]) -> None:
        self._authorizer.put({resource: await self._read(resource) for resource in resources})

    async def _read(self, resource: Resource) -> frozenset[AclEntry]:
        try:
            data = (await self._store.get(resource.path)).data
        except NoNode:
            return frozenset()
        return decode_or_stop(resource.path, data)

    async def add(self, resource: Resource, entries: Iterable[AclEntry]) -> None:
        await self._change(resource, lambda known: known | frozenset(entries))

    async def remove(self, resource: Resource, entries: Iterable[AclEntry]) -> None:
        await self._change(resource, lambda known: known - frozenset(entries))

    async def _change(self, resource: Resource, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]) -> None:
        async with self._writing:
            await self._try_to_change(resource, change)

    async def _try_to_change(
        self, resource: Resource, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
    ) -> None:
        for attempt in range(ATTEMPTS_MAX):
            try:
                wanted = await self._write(resource, change)
            except (BadVersion, NodeExists, NoNode, NotEmpty):  # another broker has written it in the meantime
                await asyncio.sleep(BACKOFF_S * attempt)
                continue
            except StoreError as error:
                raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "the metadata store does not answer") from error
            self._authorizer.put({resource: wanted})
            return
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"others keep changing the entries of {resource.name}")

    async def _write(
        self, resource: Resource, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
    ) -> frozenset[AclEntry]:
        """Write the change and its notice in one transaction. Returns the entries after it."""
        path, version = resource.path, None
        known: frozenset[AclEntry] = frozenset()
        with suppress(NoNode):
            node = await self._store.get(path)
            known, version = decode_or_stop(path, node.data), node.stat.version
        wanted = change(known)
        if wanted == known:
            return wanted
        if version is None:
            op: Op = Create(path, encode_entries(wanted))
        else:
            op = Set(path, encode_entries(wanted), version) if wanted else Delete(path, version)
        notice, data = encode_change(resource)
        await self._store.multi([op, Create(notice, data, sequential=True)] if self._notices else [op])
        return wanted

    async def close(self) -> None:
        if self._notices is not None:
            await self._notices.close()


def decode_or_stop(path: str, data: bytes) -> frozenset[AclEntry]:
    """The entries of a node. Raises if they are malformed: ignoring one could drop a deny rule."""
    try:
        return decode_entries(data)
    except MALFORMED as error:
        reason = f"the access control list at {path} cannot be read: {error!r}"
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error
