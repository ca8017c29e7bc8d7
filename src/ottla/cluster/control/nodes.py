"""What the controller reads in the store, decoded with care: one malformed node is that node's trouble. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ottla.cluster import znodes
from ottla.cluster.control.memory import Assignment, Key, Lead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.cluster.keeper import Node

DELETE_TOPICS = "/admin/delete_topics"
REASSIGN = "/admin/reassign_partitions"
PREFERRED = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
FOLDER_EVENTS = "/log_dir_event_notification"
MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


def topic_of(node: Node) -> tuple[bytes | None, dict[int, Assignment]] | None:
    """The id, unless an old tool wrote the node, and the assignments; None for what is no topic."""
    try:
        fields = _object(node.data)
        adding, removing = fields.get("adding_replicas", {}), fields.get("removing_replicas", {})
        assignments = {
            int(index): Assignment(
                tuple(map(int, replicas)),
                tuple(map(int, adding.get(index, ()))),
                tuple(map(int, removing.get(index, ()))),
            )
            for index, replicas in fields["partitions"].items()
        }
        text = fields.get("topic_id")
        topic_id = znodes.decode_uuid(text) if text else None
    except MALFORMED:
        return None
    if sorted(assignments) != list(range(len(assignments))) or not all(one.replicas for one in assignments.values()):
        return None
    return topic_id, assignments


def topic_data(name: str, topic_id: bytes, assignments: Mapping[int, Assignment]) -> bytes:
    ordered = sorted(assignments.items())
    fields = {
        "partitions": {str(index): one.replicas for index, one in ordered},
        "topic_id": znodes.encode_uuid(topic_id),
        "adding_replicas": {str(index): one.adding for index, one in ordered if one.adding},
        "removing_replicas": {str(index): one.removing for index, one in ordered if one.removing},
        "version": 3,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def lead_of(node: Node) -> Lead | None:
    try:
        fields = _object(node.data)
        isr = tuple(map(int, fields["isr"]))
        return Lead(
            int(fields["leader"]),
            int(fields["leader_epoch"]),
            isr,
            node.stat.version,
            int(fields.get("controller_epoch", 0)),
        )
    except MALFORMED:
        return None


def lead_data(lead: Lead) -> bytes:
    isr = ",".join(map(str, lead.isr))
    return (
        f'{{"controller_epoch":{lead.controller_epoch},"leader":{lead.leader},"version":1,'
        f'"leader_epoch":{lead.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def configs_of(node: Node | None) -> dict[str, str]:
    try:
        return {} if node is None else znodes.decode_configs(node.data)
    except MALFORMED:
        return {}


def partitions_of(data: bytes) -> list[Key]:
    """The partitions that a list in a node names: elections asked for, in-sync replicas that have changed."""
    return [key for key, _ in _listed(data)]


def moves_of(data: bytes) -> dict[Key, tuple[int, ...]]:
    """The replicas wanted for each partition, as the old tool writes them."""
    moves: dict[Key, tuple[int, ...]] = {}
    for key, entry in _listed(data):
        try:
            moves[key] = tuple(map(int, entry["replicas"]))
        except MALFORMED:
            continue
    return moves


def moves_data(moves: Mapping[Key, Sequence[int]]) -> bytes:
    entries = [{"topic": topic, "partition": index, "replicas": replicas} for (topic, index), replicas in moves.items()]
    return json.dumps({"version": 1, "partitions": entries}, separators=(",", ":")).encode()


def folder_event_of(data: bytes) -> int | None:
    """The broker whose folder failed."""
    try:
        return int(_object(data)["broker"])
    except MALFORMED:
        return None


def _listed(data: bytes) -> list[tuple[Key, Mapping[str, Any]]]:
    found: list[tuple[Key, Mapping[str, Any]]] = []
    try:
        entries = list(_object(data)["partitions"])
    except MALFORMED:
        return []
    for entry in entries:
        try:
            found.append(((str(entry["topic"]), int(entry["partition"])), entry))
        except MALFORMED:
            continue
    return found


def _object(data: bytes) -> dict[str, Any]:
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields
