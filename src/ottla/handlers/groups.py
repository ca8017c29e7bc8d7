"""Classic groups: JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14); and groups of every kind:
DescribeGroups (15), ListGroups (16), DeleteGroups (42).

JoinGroup v1 rebalance timeout; v4 a member without an id must join again with the one it gets; v5 static members; v7
the protocol in the answer may be null; v9 skip_assignment. SyncGroup v5 names the protocol. LeaveGroup v3 many members
at once. DescribeGroups v6 an error for a group that does not exist. ListGroups v4 by state, v5 by kind. The decisions
are in `coord/groups`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ottla.coord.groups.classic import refuse_join, refuse_sync
from ottla.coord.machine import Caller
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.repeats import Repeats
from ottla.wire.access import Operation, ResourceType
from ottla.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from ottla.coord.groups.machine import GroupMachine
    from ottla.coord.machine import Decision, Token
    from ottla.handlers.call import Steps

    Answer: TypeAlias = "Response | Awaitable[Response]"

Response = TypeVar("Response")
LEAVES_TOGETHER = 3  # the first version of LeaveGroup with a list of members
LEAVES_PER_TURN = 500
NAMES_PROTOCOL = 5  # the first version of SyncGroup in which the protocol must be named
# All operations: without an authorizer everything is allowed.
GROUP_OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))


@handles(JoinGroupRequest)
def join_group(parts: Parts, call: Call, request: JoinGroupRequest) -> Answer[JoinGroupResponse]:
    caller = caller_of(parts, call)
    return ask(
        parts,
        request.group_id,
        lambda machine, token, now_ms: machine.join(request, caller, token, now_ms),
        lambda code: refuse_join(call.version, request.member_id, code),
    )


@handles(SyncGroupRequest)
def sync_group(parts: Parts, call: Call, request: SyncGroupRequest) -> Answer[SyncGroupResponse]:
    if call.version >= NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return refuse_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return ask(
        parts,
        request.group_id,
        lambda machine, token, now_ms: machine.sync(request, token, now_ms),
        refuse_sync,
    )


@handles(HeartbeatRequest)
def heartbeat(parts: Parts, call: Call, request: HeartbeatRequest) -> Answer[HeartbeatResponse]:
    return ask(
        parts,
        request.group_id,
        lambda machine, token, now_ms: machine.heartbeat(request, token, now_ms),
        lambda code: HeartbeatResponse(error_code=code),
    )


@handles(LeaveGroupRequest)
def leave_group(parts: Parts, call: Call, request: LeaveGroupRequest) -> Answer[LeaveGroupResponse]:
    alone = call.version < LEAVES_TOGETHER
    members = [MemberIdentity(member_id=request.member_id)] if alone else request.members
    if len(members) > LEAVES_PER_TURN:
        return leave_portions(parts, request.group_id, members)
    return leave(parts, request.group_id, members, alone=alone)


async def leave_portions(parts: Parts, group_id: str, members: list[MemberIdentity]) -> LeaveGroupResponse:
    whole = LeaveGroupResponse(error_code=0, members=[])
    for first in range(0, len(members), LEAVES_PER_TURN):
        answer = leave(parts, group_id, members[first : first + LEAVES_PER_TURN], alone=False)
        response = answer if isinstance(answer, LeaveGroupResponse) else await answer
        if response.error_code:
            return response
        whole.members += response.members
        await asyncio.sleep(0)
    return whole


def leave(parts: Parts, group_id: str, members: list[MemberIdentity], *, alone: bool) -> Answer[LeaveGroupResponse]:
    return ask(
        parts,
        group_id,
        lambda machine, token, now_ms: machine.leave(group_id, members, alone, token, now_ms),
        lambda code: LeaveGroupResponse(error_code=code),
    )


@handles(DescribeGroupsRequest)
def describe_groups(parts: Parts, call: Call, request: DescribeGroupsRequest) -> Steps[DescribeGroupsResponse]:
    groups, repeats = [], Repeats()
    for name in request.groups:
        yield
        try:
            repeats.check(name)
            machine = parts.groups.peek(name)
            group = machine.describe(name, call.version)
            yield from parts.groups.wait_for_commit(name, machine)
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
        except BrokerError as error:
            group = DescribedGroup(
                error_code=error.code, group_id=name, group_state="", protocol_type="", protocol_data="", members=[]
            )
        groups.append(group)
    return DescribeGroupsResponse(groups=groups)


@handles(ListGroupsRequest)
def list_groups(parts: Parts, call: Call, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    if parts.groups.runtime.loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])
    states = {state.lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    groups = []
    for index, machine in list(parts.groups.runtime.machines()):
        found = yield from machine.list(states, kinds)
        with suppress(BrokerError):  # another broker coordinates it now
            yield from parts.groups.runtime.wait_for_commit(index, machine)
            groups += found
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)


@handles(DeleteGroupsRequest)
async def delete_groups(parts: Parts, call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = []
    for name in dict.fromkeys(request.groups_names):
        await asyncio.sleep(0)
        answer = ask(parts, name, partial(delete, name), ErrorCode)
        code: ErrorCode = answer if isinstance(answer, ErrorCode) else await answer
        results.append(DeletableGroupResult(group_id=name, error_code=code))
    return DeleteGroupsResponse(results=results)


def delete(name: str, machine: GroupMachine, token: Token, now_ms: int) -> Decision:
    return machine.delete(name, token)


def caller_of(parts: Parts, call: Call) -> Caller:
    host = f"/{call.host}"  # as Java prints an address without a host name
    return Caller(call.client_id, host, call.version, sees=sight_of(parts, call))


def sight_of(parts: Parts, call: Call) -> Callable[[str], bool] | None:
    """Whether the client may describe a topic; None if it may describe all."""
    authorizer = parts.authorizer
    if authorizer is None:
        return None
    return partial(authorizer.allows, str(call.principal), call.host, Operation.DESCRIBE, ResourceType.TOPIC)


def ask(
    parts: Parts,
    group_id: str,
    operation: Callable[[GroupMachine, Token, int], Decision],
    refuse: Callable[[ErrorCode], Response],
) -> Answer[Response]:
    """Send it to the group's coordinator. `refuse` makes a response from an error code."""
    try:
        answer: Response | asyncio.Future[Response] = parts.groups.run(group_id, operation, refuse)
    except BrokerError as error:
        return refuse(error.code)
    if isinstance(answer, asyncio.Task):  # the group is being loaded, and the operation comes after that
        return wait_for(answer, refuse)
    return answer


async def wait_for(answer: asyncio.Future[Response], refuse: Callable[[ErrorCode], Response]) -> Response:
    try:
        return await answer
    except BrokerError as error:
        return refuse(error.code)
