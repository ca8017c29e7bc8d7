"""Decodes what the controller reads from the store. A malformed node does not affect the others. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster import znodes
from ottla.cluster.control.memory import Assignment, Key, KnownTopic, Lead, describe_partition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.cluster.metadata_store import Znode

MALFORMED = znodes.MALFORMED


def topic_of(node: Znode) -> tuple[bytes | None, dict[int, Assignment]] | None:
    """The id (None if an old tool wrote the node) and the assignments; None if the node is malformed."""
    try:
        topic_id, replicas, adding, removing = znodes.decode_topic(node.data)
    except MALFORMED:
        return None
    return topic_id, {
        index: Assignment(brokers, adding.get(index, ()), removing.get(index, ()))
        for index, brokers in replicas.items()
    }


def topic_data(name: str, topic_id: bytes, assignments: Mapping[int, Assignment]) -> bytes:
    return znodes.encode_topic(KnownTopic(name, topic_id, 0, dict(assignments)).as_image())


def lead_of(node: Znode) -> Lead | None:
    try:
        state = znodes.decode_state(0, (), node)
        return Lead(
            state.leader, state.leader_epoch, state.isr, node.stat.version, znodes.decode_state_epoch(node.data)
        )
    except MALFORMED:
        return None


def lead_data(lead: Lead) -> bytes:
    return znodes.encode_state(describe_partition(0, Assignment(()), lead), lead.controller_epoch)


def configs_of(node: Znode | None) -> dict[str, str]:
    try:
        return {} if node is None else znodes.decode_configs(node.data)
    except MALFORMED:
        return {}


def preferred_of(data: bytes) -> list[Key]:
    try:
        return znodes.decode_preferred_election(data)
    except MALFORMED:
        return []


def isr_changes_of(data: bytes) -> list[Key]:
    try:
        return znodes.decode_isr_change(data)
    except MALFORMED:
        return []


def moves_of(data: bytes) -> dict[Key, tuple[int, ...]]:
    """The target replicas of each partition, as written by an old tool."""
    try:
        return znodes.decode_reassignment(data)
    except MALFORMED:
        return {}


def folder_event_of(data: bytes) -> int | None:
    """The broker with a failed log directory."""
    try:
        return znodes.decode_log_dir_event(data)
    except MALFORMED:
        return None
