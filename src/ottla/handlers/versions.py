"""ApiVersions (18), v0-4: the supported APIs and versions, from the registry of handlers.

v1 throttle time; v3 flexible, the client's name and version, features; v4 features whose lowest version is 0.
A version that is too new is answered as v0 with UNSUPPORTED_VERSION and the list, so that the client can step down.
"""

from __future__ import annotations

import re

from ottla.errors import ErrorCode
from ottla.handlers.call import TELEMETRY, Call, Parts, handles, select_apis
from ottla.wire.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

# The finalized level of each feature. Newer clients check it.
FEATURES = {"group.version": 1, "transaction.version": 2}
ZERO_LEVELS = 4  # the first version whose clients accept a feature with a minimum level of 0
NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, versions=(0, 4))
def api_versions(parts: Parts, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    names = request.client_software_name, request.client_software_version
    if call.version >= 3 and not all(NAME.fullmatch(name) for name in names):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    if call.version >= 3 and call.peer is not None:
        call.peer.software = names
    response = ApiVersionsResponse(error_code=0, api_keys=list_keys(parts), finalized_features_epoch=0)
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in FEATURES.items()
    ]
    if call.version >= ZERO_LEVELS:
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in FEATURES.items()
        ]
    return response


def refuse_version(parts: Parts) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=list_keys(parts))


def list_keys(parts: Parts) -> list[ApiVersion]:
    telemetry = None if parts is None else parts.telemetry
    silent = frozenset() if telemetry is not None and telemetry.wanted else TELEMETRY
    return [
        ApiVersion(api_key=one.key, min_version=one.versions[0], max_version=one.versions[1])
        for one in sorted(select_apis(parts).values(), key=lambda one: one.key)
        if one.key not in silent
    ]
