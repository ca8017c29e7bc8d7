"""A node that was alone becomes the first member of a cluster: its metadata are written into an empty ZooKeeper.

Topics with their ids, leaders and epochs, options, producer ids, offsets of old consumers: everything that outlives a
process. The cluster's id is written last and says that all is there. If it is interrupted before, it can begin again.
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
    """Write the tree of one store into another that keeps no cluster yet; what was written, by path."""
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
    """Whether the node is for the cluster; its root is there, and the id comes last."""
    return path not in ("/", znodes.CLUSTER_ID) and not node.stat.ephemeral


def chunks(nodes: Mapping[str, Znode]) -> Iterator[list[Create]]:
    """The writes in the order of paths, so that parents come first; as many at once as a transaction takes."""
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
