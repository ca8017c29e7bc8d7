"""Access control lists: DescribeAcls (29), CreateAcls (30), DeleteAcls (31). v1 prefixed names; v3 resource type user.

An invalid entry or filter does not affect the others: each has its own code. When the answer is sent, the change is in
the metadata store and in effect here; other brokers follow within moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.security.acl import CLUSTER_NAME, OPERATIONS, WILDCARD, AclEntry, Filter, Resource
from ottla.wire.access import Operation, Pattern, Permission, ResourceType
from ottla.wire.messages.acls import (
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from enum import IntEnum

    from ottla.wire.messages.acls import AclCreation, DeleteAclsFilter

NO_AUTHORIZER = BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
Number = TypeVar("Number", bound="IntEnum")


@handles(DescribeAclsRequest)
async def describe_acls(parts: Parts, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if parts.authorizer is None:
        message = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=message, resources=[])
    resources: dict[Resource, DescribeAclsResource] = {}
    for resource, entry in parts.authorizer.find(filter_of(request)):
        found = resources.get(resource)
        if found is None:
            found = resources[resource] = DescribeAclsResource(
                resource_type=resource.type, resource_name=resource.name, pattern_type=resource.pattern, acls=[]
            )
        found.acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
        await parts.metadata.turns.pause()
    return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=list(resources.values()))


@handles(CreateAclsRequest)
async def create_acls(parts: Parts, call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """The entries of one resource are written together."""
    results = [AclCreationResult(error_code=ErrorCode.NONE, error_message=None) for _ in request.creations]
    entries: dict[Resource, list[tuple[AclCreationResult, AclEntry]]] = {}
    for result, creation in zip(results, request.creations, strict=True):
        try:
            if parts.acl_store is None:
                raise NO_AUTHORIZER
            resource, entry = rule_of(creation)
            entries.setdefault(resource, []).append((result, entry))
        except BrokerError as error:
            result.error_code, result.error_message = error.code, error.message or None
        await parts.metadata.turns.pause()
    for resource, some in entries.items():
        assert parts.acl_store is not None
        try:
            await parts.acl_store.add(resource, [entry for _, entry in some])
        except BrokerError as error:
            for result, _ in some:
                result.error_code, result.error_message = error.code, error.message or None
    return CreateAclsResponse(results=results)


@handles(DeleteAclsRequest)
async def delete_acls(parts: Parts, call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    results = []
    for wanted in request.filters:
        try:
            results.append(
                DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=await delete(parts, wanted))
            )
        except BrokerError as error:
            results.append(
                DeleteAclsFilterResult(error_code=error.code, error_message=error.message or None, matching_acls=[])
            )
    return DeleteAclsResponse(filter_results=results)


async def delete(parts: Parts, wanted: DeleteAclsFilter) -> list[DeleteAclsMatchingAcl]:
    if parts.authorizer is None or parts.acl_store is None:
        raise NO_AUTHORIZER
    found: dict[Resource, list[AclEntry]] = {}
    for resource, entry in parts.authorizer.find(filter_of(wanted)):
        found.setdefault(resource, []).append(entry)
        await parts.metadata.turns.pause()
    for resource, entries in found.items():
        await parts.acl_store.remove(resource, entries)
    return [
        DeleteAclsMatchingAcl(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.type,
            resource_name=resource.name,
            pattern_type=resource.pattern,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for resource, entries in found.items()
        for entry in entries
    ]


def number(kind: type[Number], value: int, what: str) -> Number:
    try:
        known = kind(value)
    except ValueError:
        known = kind(0)
    if known == 0:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"unknown {what}: {value}")
    return known


def filter_of(request: DescribeAclsRequest | DeleteAclsFilter) -> Filter:
    return Filter(
        number(ResourceType, request.resource_type_filter, "resource type"),
        request.resource_name_filter,
        number(Pattern, request.pattern_type_filter, "pattern type"),
        request.principal_filter,
        request.host_filter,
        number(Operation, request.operation, "operation"),
        number(Permission, request.permission_type, "permission"),
    )


def rule_of(creation: AclCreation) -> tuple[Resource, AclEntry]:
    """The rule to create; BrokerError if it is invalid."""
    kind = number(ResourceType, creation.resource_type, "resource type")
    pattern = number(Pattern, creation.resource_pattern_type, "pattern type")
    operation = number(Operation, creation.operation, "operation")
    permission = number(Permission, creation.permission_type, "permission")
    name = creation.resource_name
    if kind is ResourceType.ANY or pattern in (Pattern.ANY, Pattern.MATCH):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "an entry needs one type of resource, literal or prefixed")
    if operation is Operation.ANY or permission is Permission.ANY:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "an entry needs one operation, allowed or denied")
    if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{kind.name} has no operation {operation.name}")
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"the only cluster is {CLUSTER_NAME}")
    if not name or "/" in name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Resource name {name!r} is illegal")
    if ":" not in creation.principal:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a principal is a type and a name, such as User:alice")
    if not creation.host:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"a host is an address, or {WILDCARD}")
    return Resource(kind, name, pattern), AclEntry(creation.principal, creation.host, operation, permission)
