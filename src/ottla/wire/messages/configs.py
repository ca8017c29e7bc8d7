"""Reading and changing options of topics, brokers, groups and client metrics.

DescribeConfigs (32): versions 0 to 4
     1  adds include_synonyms; answer adds config_source, synonyms, drops is_default
     2  over quota, the answer is sent before throttling
     3  adds include_documentation; answer adds config_type, documentation
     4  flexible

AlterConfigs (33): versions 0 to 2
     1  over quota, the answer is sent before throttling
     2  flexible

IncrementalAlterConfigs (44): versions 0 to 1
     1  flexible

ListConfigResources (74): versions 0 to 1
     0  client metrics only
     1  adds resource_types; answer adds resource_type

ListClientMetricsResources (74): version 0
     0  what 3.9 calls version 0 of ListConfigResources
"""

from __future__ import annotations

from ottla.wire.schema import at, boolean, i8, i16, i32, message, nested, string


@nested
class DescribeConfigsResource:
    resource_type: i8
    resource_name: string
    configuration_keys: list[string] | None


@message(32, versions=(0, 4), flexible=4)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource]
    include_synonyms: boolean = at(1, default=False)
    include_documentation: boolean = at(3, default=False)


@nested
class DescribeConfigsSynonym:
    name: string
    value: string | None
    source: i8


@nested
class DescribeConfigsResourceResult:
    name: string
    value: string | None
    read_only: boolean
    is_default: boolean = at(0, 0, default=False)
    config_source: i8 = at(1, default=-1)
    is_sensitive: boolean
    synonyms: list[DescribeConfigsSynonym] = at(1, factory=list)
    config_type: i8 = at(3, default=0)
    documentation: string | None = at(3, default="")


@nested
class DescribeConfigsResult:
    error_code: i16
    error_message: string | None
    resource_type: i8
    resource_name: string
    configs: list[DescribeConfigsResourceResult]


@message(32, versions=(0, 4), flexible=4)
class DescribeConfigsResponse:
    throttle_time_ms: i32 = at(default=0)
    results: list[DescribeConfigsResult]


@nested
class AlterableConfig:
    name: string
    value: string | None


@nested
class AlterConfigsResource:
    resource_type: i8
    resource_name: string
    configs: list[AlterableConfig]


@message(33, versions=(0, 2), flexible=2)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: boolean


@nested
class AlterConfigsResourceResponse:
    error_code: i16
    error_message: string | None
    resource_type: i8
    resource_name: string


@message(33, versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    throttle_time_ms: i32 = at(default=0)
    responses: list[AlterConfigsResourceResponse]


@nested
class IncrementalAlterableConfig:
    name: string
    config_operation: i8
    value: string | None


@nested
class IncrementalAlterConfigsResource:
    resource_type: i8
    resource_name: string
    configs: list[IncrementalAlterableConfig]


@message(44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsResource]
    validate_only: boolean


@message(44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: i32 = at(default=0)
    responses: list[AlterConfigsResourceResponse]


@message(74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    resource_types: list[i8] = at(1, factory=list)


@nested
class ConfigResource:
    resource_name: string
    resource_type: i8 = at(1, default=16)


@message(74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    config_resources: list[ConfigResource]


@message(74, versions=(0, 0), flexible=0)
class ListClientMetricsResourcesRequest:
    pass


@nested
class ClientMetricsResource:
    name: string


@message(74, versions=(0, 0), flexible=0)
class ListClientMetricsResourcesResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    client_metrics_resources: list[ClientMetricsResource]
