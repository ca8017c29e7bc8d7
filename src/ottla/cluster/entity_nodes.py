"""The nodes of users, client ids and IP addresses (credentials and quotas): the writes that change them.

Some are nested: /config/users/U/clients/C needs its parents, which may be empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.metadata_store import Create, Delete, NoNode, Set

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.cluster.metadata_store import MetadataStore, Op, Znode


async def write(store: MetadataStore, node: str, pairs: Mapping[str, str]) -> list[Op]:
    """The writes that store these pairs. A node without pairs is deleted, and so are parents that become empty."""
    if not pairs:
        return await remove(store, node)
    path, data = znodes.entity_path(node), znodes.encode_configs(pairs)
    if await read(store, path) is not None:
        return [Set(path, data)]
    return [*await make_parents(store, node), Create(path, data)]


async def make_parents(store: MetadataStore, node: str) -> list[Op]:
    """The writes that create the missing parents of a node."""
    missing: list[Op] = []
    for parent in parents(node):
        if await read(store, parent) is not None:
            break
        missing.append(Create(parent))
    return missing[::-1]


async def remove(store: MetadataStore, node: str) -> list[Op]:
    path = znodes.entity_path(node)
    if await store.children(path):
        return [Set(path, b"")]
    ops: list[Op] = [Delete(path)]
    for parent in parents(node):
        found = await read(store, parent)
        if found is None or znodes.decode_configs(found.data) or len(await store.children(parent)) > 1:
            break
        ops.append(Delete(parent))
    return ops


async def read(store: MetadataStore, path: str) -> Znode | None:
    try:
        return await store.get(path)
    except NoNode:
        return None


def parents(node: str) -> Iterator[str]:
    """The parents of a node that do not always exist, nearest first."""
    path = znodes.entity_path(node).rpartition("/")[0]
    while path not in znodes.PARENTS:
        yield path
        path = path.rpartition("/")[0]
