"""Client quotas: DescribeClientQuotas (48) and AlterClientQuotas (49). Codes and messages are Kafka's.

They are stored in the metadata store (`ottla.quota.entity`), and every broker of a cluster enforces them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.quota.entity import (
    CLIENT_ID,
    DEFAULT,
    IP,
    TYPES,
    USER,
    Entity,
    decode_values,
    encode_value,
    entity_at,
    entity_of,
    invalid,
)
from ottla.quota.limits import find_address
from ottla.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntryData,
    EntityData,
    ValueData,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.cluster.image import Image
    from ottla.handlers.call import Steps
    from ottla.wire.messages.quotas import AlterClientQuotasRequestEntryData, ComponentData

EXACT, DEFAULTS, SPECIFIED = range(3)
MATCHES = {DEFAULTS: "DEFAULT", SPECIFIED: "SPECIFIED"}
Wanted = dict[str, str | None]  # names by entity type; None: any


@handles(DescribeClientQuotasRequest)
def describe(parts: Parts, call: Call, request: DescribeClientQuotasRequest) -> Steps[DescribeClientQuotasResponse]:
    try:
        wanted = read_filter(request.components)
    except BrokerError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = []
    for entity, pairs in entities(parts.metadata.image):
        if matches(entity.parts, wanted, strict=request.strict):
            values = decode_values(pairs, entity.keys)
            if values:
                entries.append(
                    DescribeClientQuotasResponseEntryData(
                        entity=name_parts({kind: name or None for kind, name in entity.parts.items()}),
                        values=[ValueData(key=key, value=value) for key, value in values.items()],
                    )
                )
        yield
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message="", entries=entries)


def entities(image: Image) -> Iterator[tuple[Entity, Mapping[str, str]]]:
    """All entities with stored values."""
    for user, pairs in image.users.items():
        yield Entity(user=user), pairs
    for node, pairs in image.quotas.items():
        entity = entity_at(node)
        if entity is not None:
            yield entity, pairs


def read_filter(components: list[ComponentData]) -> Wanted:
    wanted: Wanted = {}
    for one in components:
        kind = one.entity_type
        if not kind:
            raise invalid("Invalid empty entity type.")
        if kind in wanted:
            raise invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if one.match_type == EXACT:
            if one.match is None:
                raise invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            wanted[kind] = one.match or NOBODY
        elif one.match_type not in MATCHES:
            raise invalid(f"Unknown match type {one.match_type}")
        elif one.match is not None:
            name = MATCHES[one.match_type]
            raise invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
        else:
            wanted[kind] = DEFAULT if one.match_type == DEFAULTS else None
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        reason = "IP filter component should not be used with user or clientId filter component."
        raise invalid(f"Invalid entity filter component combination. {reason}")
    return wanted


NOBODY = "\0"  # matches nothing; stands for an empty name


def matches(names: Mapping[str, str], wanted: Wanted, *, strict: bool) -> bool:
    """Whether an entity has the wanted names; `strict`: and no others."""
    if strict and names.keys() != wanted.keys():
        return False
    return all(kind in names and name in (None, names[kind]) for kind, name in wanted.items())


@handles(AlterClientQuotasRequest)
async def alter(parts: Parts, call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """An invalid entry does not affect the others. As in Kafka, if two entries are for the same entity, the first is
    applied and the second gets an error."""
    results: dict[frozenset[tuple[str, str | None]], AlterClientQuotasResponseEntryData] = {}
    for entry in request.entries:
        await parts.metadata.turns.pause()
        names = {one.entity_type: one.entity_name for one in entry.entity}
        key, code, message = frozenset(names.items()), ErrorCode.NONE, None
        try:
            if key in results or repeats(entry):
                shown = ", ".join(f"{kind}={name}" for kind, name in sorted(names.items()))
                raise invalid(
                    f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown.replace('None', 'null')}}})"
                )
            await change(parts, names, entry, validate_only=request.validate_only)
        except BrokerError as error:
            code, message = error.code, error.message
        results[key] = AlterClientQuotasResponseEntryData(
            error_code=code, error_message=message, entity=name_parts(names)
        )
    return AlterClientQuotasResponse(entries=list(results.values()))


def repeats(entry: AlterClientQuotasRequestEntryData) -> bool:
    return len({op.key for op in entry.ops}) < len(entry.ops)


async def change(
    parts: Parts, names: Mapping[str, str | None], entry: AlterClientQuotasRequestEntryData, *, validate_only: bool
) -> None:
    entity = entity_of(names)
    if entity.ip:
        await check_host(entity.ip)
    changes = {op.key: None if op.remove else encode_value(entity, op.key, op.value) for op in entry.ops}
    # Change quotas only: the entity may have credentials, too.
    known = {key: value for key, value in changes.items() if key in entity.keys}
    if known and not validate_only:
        await parts.controller.alter_entity(entity.node, known)


async def check_host(name: str) -> None:
    if find_address(name) is None:
        try:
            await asyncio.get_running_loop().getaddrinfo(name, None)
        except (OSError, UnicodeError):
            raise invalid(f"{name} is not a valid IP or resolvable host.") from None


def name_parts(names: Mapping[str, str | None]) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()]
