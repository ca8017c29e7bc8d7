"""Which broker coordinates a group or a transactional id: FindCoordinator (10).

v1 kinds of keys: groups and transactional ids; v3 flexible; v4 many keys at once; v5-6 newer errors and kinds.
The coordinator of a key is the leader of its partition of the internal topic. The topic is created on first use.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.errors import BrokerError, ErrorCode, description
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.metadata import list_brokers
from ottla.steps import Steps as Troubles
from ottla.wire.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from ottla.coord.coordinator import Coordinator as Machines
    from ottla.handlers.call import Steps

steps = Troubles("ottla.coordinators")

GROUP, TRANSACTION = 0, 1
MANY_KEYS = 4


@handles(FindCoordinatorRequest, versions=(0, 6))
def find_coordinator(parts: Parts, call: Call, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
    kinds: dict[int, Machines[Any]] = {GROUP: parts.groups, TRANSACTION: parts.transactions}
    machines = kinds.get(request.key_type)
    if machines is not None and not machines.exists:
        yield asyncio.shield(asyncio.ensure_future(make(machines)))
    if call.version >= MANY_KEYS:
        found_all = []
        for key in request.coordinator_keys:
            found_all.append(find(parts, call, key, machines))
            yield
        return FindCoordinatorResponse(coordinators=found_all)
    found = find(parts, call, request.key, machines)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or "NONE",  # as Kafka writes it
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def make(machines: Machines[Any]) -> None:
    with steps.attempt(f"making {machines.topic}"):  # until it exists its keys have no coordinator
        await machines.ensure()


def find(parts: Parts, call: Call, key: str, machines: Machines[Any] | None) -> Coordinator:
    try:
        if machines is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        leader = machines.leader_of(key)
        address = {node_id: (host, port) for node_id, host, port, _ in list_brokers(parts, call)}.get(leader)
        if address is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except BrokerError as error:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=error.code,
            error_message=error.message or description(error.code),
        )
    return Coordinator(key=key, node_id=leader, host=address[0], port=address[1], error_code=0, error_message="")
