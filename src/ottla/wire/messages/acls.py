"""ACLs: list, add, remove.

DescribeAcls (29): versions 0 to 3
     1  adds pattern_type_filter; answer adds pattern_type; over quota, the answer is sent before throttling
     2  flexible
     3  resource type user

CreateAcls (30): versions 0 to 3
     1  adds resource_pattern_type; over quota, the answer is sent before throttling
     2  flexible
     3  resource type user

DeleteAcls (31): versions 0 to 3
     1  adds pattern_type_filter; answer adds pattern_type; over quota, the answer is sent before throttling
     2  flexible
     3  resource type user
"""

from __future__ import annotations

from ottla.wire.schema import at, i8, i16, i32, message, nested, string


@message(29, versions=(0, 3), flexible=2)
class DescribeAclsRequest:
    resource_type_filter: i8
    resource_name_filter: string | None
    pattern_type_filter: i8 = at(1, default=3)
    principal_filter: string | None
    host_filter: string | None
    operation: i8
    permission_type: i8


@nested
class AclDescription:
    principal: string
    host: string
    operation: i8
    permission_type: i8


@nested
class DescribeAclsResource:
    resource_type: i8
    resource_name: string
    pattern_type: i8 = at(1, default=3)
    acls: list[AclDescription]


@message(29, versions=(0, 3), flexible=2)
class DescribeAclsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None
    resources: list[DescribeAclsResource]


@nested
class AclCreation:
    resource_type: i8
    resource_name: string
    resource_pattern_type: i8 = at(1, default=3)
    principal: string
    host: string
    operation: i8
    permission_type: i8


@message(30, versions=(0, 3), flexible=2)
class CreateAclsRequest:
    creations: list[AclCreation]


@nested
class AclCreationResult:
    error_code: i16
    error_message: string | None


@message(30, versions=(0, 3), flexible=2)
class CreateAclsResponse:
    throttle_time_ms: i32 = at(default=0)
    results: list[AclCreationResult]


@nested
class DeleteAclsFilter:
    resource_type_filter: i8
    resource_name_filter: string | None
    pattern_type_filter: i8 = at(1, default=3)
    principal_filter: string | None
    host_filter: string | None
    operation: i8
    permission_type: i8


@message(31, versions=(0, 3), flexible=2)
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter]


@nested
class DeleteAclsMatchingAcl:
    error_code: i16
    error_message: string | None
    resource_type: i8
    resource_name: string
    pattern_type: i8 = at(1, default=3)
    principal: string
    host: string
    operation: i8
    permission_type: i8


@nested
class DeleteAclsFilterResult:
    error_code: i16
    error_message: string | None
    matching_acls: list[DeleteAclsMatchingAcl]


@message(31, versions=(0, 3), flexible=2)
class DeleteAclsResponse:
    throttle_time_ms: i32 = at(default=0)
    filter_results: list[DeleteAclsFilterResult]
