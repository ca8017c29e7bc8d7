"""Client quotas by user, client id and address.

DescribeClientQuotas (48): versions 0 to 1
     1  flexible

AlterClientQuotas (49): versions 0 to 1
     1  flexible
"""

from __future__ import annotations

from ottla.wire.schema import at, boolean, f64, i8, i16, i32, message, nested, string


@nested
class ComponentData:
    entity_type: string
    match_type: i8
    match: string | None


@message(48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest:
    components: list[ComponentData]
    strict: boolean


@nested
class EntityData:
    entity_type: string
    entity_name: string | None


@nested
class ValueData:
    key: string
    value: f64


@nested
class DescribeClientQuotasResponseEntryData:
    entity: list[EntityData]
    values: list[ValueData]


@message(48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None
    entries: list[DescribeClientQuotasResponseEntryData] | None


@nested
class OpData:
    key: string
    value: f64
    remove: boolean


@nested
class AlterClientQuotasRequestEntryData:
    entity: list[EntityData]
    ops: list[OpData]


@message(49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest:
    entries: list[AlterClientQuotasRequestEntryData]
    validate_only: boolean


@nested
class AlterClientQuotasResponseEntryData:
    error_code: i16
    error_message: string | None
    entity: list[EntityData]


@message(49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse:
    throttle_time_ms: i32 = at(default=0)
    entries: list[AlterClientQuotasResponseEntryData]
