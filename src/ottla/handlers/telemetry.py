"""Metrics that clients push: GetTelemetrySubscriptions (71), PushTelemetry (72), v0.

ApiVersions lists them only while metrics are wanted (`ottla.client.metrics`): modern clients push as soon as they see
these APIs.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.telemetry.receiver import CODECS
from ottla.telemetry.subscriptions import Client
from ottla.wire.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.handlers.call import Steps


@handles(GetTelemetrySubscriptionsRequest)
def get_telemetry_subscriptions(
    parts: Parts, call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = parts.telemetry
    assert telemetry is not None, "the API is not served without telemetry"
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = telemetry.new_id()
    response = GetTelemetrySubscriptionsResponse(
        error_code=0,
        client_instance_id=instance_id,
        subscription_id=0,
        accepted_compression_types=[],
        push_interval_ms=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )
    try:
        wants = telemetry.ask(client_of(call, instance_id))
    except BrokerError as error:
        response.error_code = error.code
        response.client_instance_id = ZERO_UUID
        return response
    response.subscription_id, response.push_interval_ms = wants.id, wants.interval_ms
    response.accepted_compression_types = list(CODECS)
    response.telemetry_max_bytes = telemetry.size_max
    # Kafka requests deltas since the last push. Totals survive a push that is lost or sent to another broker.
    response.delta_temporality = False
    response.requested_metrics = list(wants.metrics)
    return response


@handles(PushTelemetryRequest)
def push_telemetry(parts: Parts, call: Call, request: PushTelemetryRequest) -> Steps[PushTelemetryResponse]:
    telemetry = parts.telemetry
    assert telemetry is not None, "the API is not served without telemetry"
    if request.client_instance_id == ZERO_UUID:
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        yield from telemetry.push(
            client_of(call, request.client_instance_id),
            request.subscription_id,
            request.compression_type,
            bytes(request.metrics),
            terminating=request.terminating,
        )
    except BrokerError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse(error_code=0)


def client_of(call: Call, instance_id: bytes) -> Client:
    assert call.peer is not None
    name, version = call.peer.software
    shown = urlsafe_b64encode(instance_id).decode().rstrip("=")  # as Kafka writes ids
    return Client(shown, call.client_id, name, version, call.host, str(call.peer.port))
