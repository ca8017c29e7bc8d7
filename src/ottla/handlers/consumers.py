"""Consumer groups (KIP-848): ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69).

ConsumerGroupHeartbeat v1 regular expressions, members make their own ids. ConsumerGroupDescribe v1 the protocol of each
member. The decisions are in `coord/groups`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.coord.groups import consuming, describing
from ottla.coord.groups.consumer import ConsumerGroup
from ottla.coord.patterns import PatternError, lookup
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.groups import GROUP_OPERATIONS, ask, caller_of, sight_of
from ottla.handlers.repeats import Repeats
from ottla.wire.messages.consumers import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from ottla.handlers.call import Steps
    from ottla.handlers.groups import Answer

    Heartbeat: TypeAlias = Answer[ConsumerGroupHeartbeatResponse]

PROTOCOL = "consumer"


@handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    parts: Parts, call: Call, request: ConsumerGroupHeartbeatRequest
) -> Heartbeat | Steps[Heartbeat]:
    if not is_enabled(parts):
        return consuming.refuse(ErrorCode.UNSUPPORTED_VERSION)
    texts = list_unresolved_patterns(parts, request)
    return heartbeat_after_lookup(parts, call, request, texts) if texts else heartbeat(parts, call, request)


def list_unresolved_patterns(parts: Parts, request: ConsumerGroupHeartbeatRequest) -> list[str]:
    """The patterns that this heartbeat may have to resolve."""
    texts = [request.subscribed_topic_regex] if request.subscribed_topic_regex else []
    try:
        group = parts.groups.peek(request.group_id).groups.get(request.group_id)
    except BrokerError:
        return texts
    if isinstance(group, ConsumerGroup):
        texts += group.unresolved_patterns(parts.metadata.image, parts.clock.now_ms())
    return texts


def heartbeat_after_lookup(
    parts: Parts, call: Call, request: ConsumerGroupHeartbeatRequest, texts: list[str]
) -> Steps[Heartbeat]:
    """Resolve the patterns in slices, so that the group's machine, which cannot pause, finds them in the cache; and
    with them, whether the client may describe the topics found."""
    sees = sight_of(parts, call)
    for text in texts:
        with suppress(PatternError):  # the machine refuses it
            found = yield from lookup(text, parts.metadata.image.topics)
            if sees is not None:
                for name in found:
                    sees(name)
                    yield
        yield
    return heartbeat(parts, call, request)


def heartbeat(parts: Parts, call: Call, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    caller = caller_of(parts, call)
    return ask(
        parts,
        request.group_id,
        lambda machine, token, now_ms: machine.consumer_heartbeat(request, caller, token, now_ms),
        consuming.refuse,
    )


@handles(ConsumerGroupDescribeRequest)
def consumer_group_describe(
    parts: Parts, call: Call, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    groups, repeats = [], Repeats()
    for name in request.group_ids:
        groups.append((yield from describe(parts, name, repeats, told=request.include_authorized_operations)))
        yield
    return ConsumerGroupDescribeResponse(groups=groups)


def describe(parts: Parts, name: str, repeats: Repeats, *, told: bool) -> Steps[DescribedGroup]:
    if not is_enabled(parts):
        return describing.refuse(name, ErrorCode.UNSUPPORTED_VERSION)
    try:
        repeats.check(name)
        machine = parts.groups.peek(name)
        try:
            group = describing.describe(
                machine.groups.get(name), name, machine.consumer_rules(name), parts.metadata.image
            )
        except BrokerError as error:
            group, told = describing.refuse(name, error.code, error.message), False
        yield from parts.groups.wait_for_commit(name, machine)
    except BrokerError as error:
        return describing.refuse(name, error.code, error.message)
    if told:
        group.authorized_operations = GROUP_OPERATIONS
    return group


def is_enabled(parts: Parts) -> bool:
    return PROTOCOL in parts.config.group_coordinator_rebalance_protocols
