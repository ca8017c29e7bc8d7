"""Turns a single node into the first member of a cluster: copies its metadata into an empty ZooKeeper.

Topics with their ids, leaders and epochs, configs, producer ids, offsets of old consumers: everything that outlives a
process. The cluster id is written last and marks the copy as complete. An interrupted copy can be started again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.metadata_store import Create, NodeExists, NoNode
from ottla.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.cluster.metadata_store import MetadataStore, Znode

OPS_MAX = 200  # in one transaction
SIZE_MAX = 500_000


async def hand_over(source: MetadataStore, target: MetadataStore) -> Mapping[str, Znode]:
    """Copy the tree of one store into another that has no cluster yet. Returns what was written, by path."""
    nodes = await source.tree("/")
    if znodes.CLUSTER_ID not in nodes:
        raise BrokerError(ErrorCode.INVALID_CONFIG, "the folder has no metadata of a broker that ran alone")
    try:
        other = znodes.decode_cluster_id((await target.get(znodes.CLUSTER_ID)).data)
    except NoNode:
        pass
    else:
        reason = f"ZooKeeper keeps a cluster already ({other}): a node can only become the first member of a new one"
        raise BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
    kept = {path: nodes[path] for path in sorted(nodes) if is_kept(path, nodes[path])}
    for chunk in chunks(kept):
        try:
            await target.multi(chunk)
        except NodeExists:
            for op in chunk:
                await put(target, op)
    await put(target, Create(znodes.CLUSTER_ID, nodes[znodes.CLUSTER_ID].data))
    return kept


def is_kept(path: str, node: Znode) -> bool:
    """Whether to copy the node: not if ephemeral. The root exists already, and the id is written last."""
    return path not in ("/", znodes.CLUSTER_ID) and not node.stat.ephemeral


def chunks(nodes: Mapping[str, Znode]) -> Iterator[list[Create]]:
    """The writes in path order, so that parents come first, in chunks that fit into a transaction."""
    chunk: list[Create] = []
    size = 0
    for path, node in nodes.items():
        chunk.append(Create(path, node.data))
        size += len(path) + len(node.data)
        if len(chunk) >= OPS_MAX or size >= SIZE_MAX:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


async def put(target: MetadataStore, op: Create) -> None:
    try:
        await target.create(op.path, op.data)
    except NodeExists:
        await target.set(op.path, op.data)
