"""Registration of brokers and controllers, and the feature levels of a cluster.

UpdateFeatures (57): versions 0 to 2
     1  adds upgrade_type, validate_only, drops allow_downgrade
     2  answer drops results

BrokerRegistration (62): versions 0 to 4
     1  adds is_migrating_zk_broker
     2  adds log_dirs
     3  adds previous_broker_epoch
     4  min_supported_version of a feature may be 0

BrokerHeartbeat (63): versions 0 to 2
     1  adds offline_log_dirs
     2  adds cordoned_log_dirs

UnregisterBroker (64): version 0

ControllerRegistration (70): version 0
"""

from __future__ import annotations

from ottla.wire.schema import at, boolean, i8, i16, i32, i64, message, nested, string, u16, uuid


@nested
class FeatureUpdateKey:
    feature: string
    max_version_level: i16
    allow_downgrade: boolean = at(0, 0, default=False)
    upgrade_type: i8 = at(1, default=1)


@message(57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest:
    timeout_ms: i32 = at(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: boolean = at(1, default=False)


@nested
class UpdatableFeatureResult:
    feature: string
    error_code: i16
    error_message: string | None


@message(57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None
    results: list[UpdatableFeatureResult] = at(0, 1, factory=list)


@nested
class Listener:
    name: string
    host: string
    port: u16
    security_protocol: i16


@nested
class Feature:
    name: string
    min_supported_version: i16
    max_supported_version: i16


@message(62, versions=(0, 4), flexible=0)
class BrokerRegistrationRequest:
    broker_id: i32
    cluster_id: string
    incarnation_id: uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: string | None
    is_migrating_zk_broker: boolean = at(1, default=False)
    log_dirs: list[uuid] = at(2, factory=list)
    previous_broker_epoch: i64 = at(3, default=-1)


@message(62, versions=(0, 4), flexible=0)
class BrokerRegistrationResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    broker_epoch: i64 = at(default=-1)


@message(63, versions=(0, 2), flexible=0)
class BrokerHeartbeatRequest:
    broker_id: i32
    broker_epoch: i64 = at(default=-1)
    current_metadata_offset: i64
    want_fence: boolean
    want_shut_down: boolean
    offline_log_dirs: list[uuid] = at(1, tag=0, factory=list)
    cordoned_log_dirs: list[uuid] | None = at(2, tag=1, default=None)


@message(63, versions=(0, 2), flexible=0)
class BrokerHeartbeatResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    is_caught_up: boolean = at(default=False)
    is_fenced: boolean = at(default=True)
    should_shut_down: boolean


@message(64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest:
    broker_id: i32


@message(64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None


@message(70, versions=(0, 0), flexible=0)
class ControllerRegistrationRequest:
    controller_id: i32
    incarnation_id: uuid
    zk_migration_ready: boolean
    listeners: list[Listener]
    features: list[Feature]


@message(70, versions=(0, 0), flexible=0)
class ControllerRegistrationResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None
