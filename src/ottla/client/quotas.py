"""Client quotas: list, set, remove. An entity is a mapping of its types (user, client-id, ip) to names; None is the
default, for all who have no quota of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.client.failure import check, detail
from ottla.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.cluster import Cluster

EXACT, DEFAULT = 0, 1


class Quota(NamedTuple):
    """The quotas of one entity: names by type, and values by key."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


def list_quotas(cluster: Cluster, entity: Mapping[str, str | None] | None = None) -> list[Quota]:
    """All quotas, or those of entities with these parts."""
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in (entity or {}).items()
    ]

    def attempt() -> list[Quota]:
        request = DescribeClientQuotasRequest(components=components, strict=False)
        answer = cluster.controller().ask(request, DescribeClientQuotasResponse)
        check("listing quotas", answer.error_code, detail(answer.error_message))
        found = [
            Quota(
                {one.entity_type: one.entity_name for one in sorted(entry.entity, key=lambda one: one.entity_type)},
                {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
            )
            for entry in answer.entries or ()
        ]
        return sorted(found, key=lambda quota: [(kind, name or "") for kind, name in quota.entity.items()])

    return cluster.retrying(attempt, what="listing quotas")


def alter_quotas(cluster: Cluster, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
    """Set these quotas of an entity; None removes one."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )

    def attempt() -> None:
        request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
        for result in cluster.controller().ask(request, AlterClientQuotasResponse).entries:
            check("changing quotas", result.error_code, detail(result.error_message))

    cluster.retrying(attempt, what="changing quotas")
