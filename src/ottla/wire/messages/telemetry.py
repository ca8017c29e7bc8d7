"""Client metrics pushed to the broker (KIP-714).

GetTelemetrySubscriptions (71): version 0

PushTelemetry (72): version 0
"""

from __future__ import annotations

from ottla.wire.schema import at, blob, boolean, i8, i16, i32, message, string, uuid


@message(71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsRequest:
    client_instance_id: uuid


@message(71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    client_instance_id: uuid
    subscription_id: i32
    accepted_compression_types: list[i8]
    push_interval_ms: i32
    telemetry_max_bytes: i32
    delta_temporality: boolean
    requested_metrics: list[string]


@message(72, versions=(0, 0), flexible=0)
class PushTelemetryRequest:
    client_instance_id: uuid
    subscription_id: i32
    terminating: boolean
    compression_type: i8
    metrics: blob


@message(72, versions=(0, 0), flexible=0)
class PushTelemetryResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
