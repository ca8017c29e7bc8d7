"""Consumer groups that the broker assigns (KIP-848): ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69).

ConsumerGroupHeartbeat v1 regular expressions, members that make their own ids. ConsumerGroupDescribe v1 tells which
protocol a member speaks. What a heartbeat leads to is in `coord/groups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coord.groups.consuming import refused
from ottla.coord.groups.describing import described, undescribed
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.groups import GROUP_OPERATIONS, ask, caller_of
from ottla.wire.messages.consumers import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

PROTOCOL = "consumer"


@handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    parts: Parts, call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Coroutine[None, None, ConsumerGroupHeartbeatResponse]:
    if not enabled(parts):
        return refused(ErrorCode.UNSUPPORTED_VERSION)
    caller = caller_of(call)
    answer: ConsumerGroupHeartbeatResponse | Coroutine[None, None, ConsumerGroupHeartbeatResponse] = ask(
        parts,
        request.group_id,
        lambda machine, token, now_ms: machine.consumer_heartbeat(request, caller, token, now_ms),
        refused,
    )
    return answer


@handles(ConsumerGroupDescribeRequest)
def consumer_group_describe(
    parts: Parts, call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[describe(parts, name, told=request.include_authorized_operations) for name in request.group_ids]
    )


def describe(parts: Parts, name: str, *, told: bool) -> DescribedGroup:
    if not enabled(parts):
        return undescribed(name, ErrorCode.UNSUPPORTED_VERSION)
    try:
        machine = parts.groups.peek(name)
        group = described(machine.groups.get(name), name, machine.consumer_rules(name), parts.controller.image)
    except BrokerError as error:
        return undescribed(name, error.code, error.message)
    if told:
        group.authorized_operations = GROUP_OPERATIONS
    return group


def enabled(parts: Parts) -> bool:
    return PROTOCOL in parts.config.group_coordinator_rebalance_protocols
