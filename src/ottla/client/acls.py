"""Access control lists of a cluster: list, add, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.client.failure import check, detail
from ottla.wire.access import Operation, Pattern, Permission, ResourceType
from ottla.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.cluster import Cluster


class AclRule(NamedTuple):
    """One rule. In a search, ANY and None match everything."""

    type: ResourceType
    name: str | None
    pattern: Pattern
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission


def list_rules(cluster: Cluster, wanted: AclRule) -> list[AclRule]:
    request = DescribeAclsRequest(
        resource_type_filter=wanted.type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )

    def attempt() -> list[AclRule]:
        answer = cluster.controller().ask(request, DescribeAclsResponse)
        check("listing access control lists", answer.error_code, detail(answer.error_message))
        return [
            AclRule(
                ResourceType(one.resource_type),
                one.resource_name,
                Pattern(one.pattern_type),
                acl.principal,
                acl.host,
                Operation(acl.operation),
                Permission(acl.permission_type),
            )
            for one in answer.resources
            for acl in one.acls
        ]

    return sorted(cluster.retrying(attempt, what="listing access control lists"))


def add_rules(cluster: Cluster, rules: Sequence[AclRule]) -> None:
    """Adding one that exists changes nothing."""
    creations = [
        AclCreation(
            resource_type=rule.type,
            resource_name=rule.name or "",
            resource_pattern_type=rule.pattern,
            principal=rule.principal or "",
            host=rule.host or "",
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in rules
    ]

    def attempt() -> None:
        answer = cluster.controller().ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
        for rule, result in zip(rules, answer.results, strict=True):
            check(f"a rule for {rule.principal}", result.error_code, detail(result.error_message))

    cluster.retrying(attempt, what="adding access control lists")


def remove_rules(cluster: Cluster, wanted: Sequence[AclRule]) -> int:
    """Remove all rules that match; returns their number."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=rule.type,
            resource_name_filter=rule.name,
            pattern_type_filter=rule.pattern,
            principal_filter=rule.principal,
            host_filter=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in wanted
    ]

    def attempt() -> int:
        answer = cluster.controller().ask(DeleteAclsRequest(filters=filters), DeleteAclsResponse)
        for result in answer.filter_results:
            check("removing access control lists", result.error_code, detail(result.error_message))
            for acl in result.matching_acls:
                check(f"a rule for {acl.principal}", acl.error_code, detail(acl.error_message))
        return sum(len(result.matching_acls) for result in answer.filter_results)

    return cluster.retrying(attempt, what="removing access control lists")
