"""The calls that only a secured broker has a use for, answered as Kafka does when security is off.

Delegation tokens (38-41): not on a plain connection.
"""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.wire.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

ANYBODY = ("User", "ANONYMOUS")  # who a client on a plain connection is


@handles(CreateDelegationTokenRequest)
def create_token(parts: Parts, call: Call, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    kind, name = ANYBODY
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",  # nosec B106 # no token is given
        hmac=b"",
    )


@handles(RenewDelegationTokenRequest)
def renew_token(parts: Parts, call: Call, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


@handles(ExpireDelegationTokenRequest)
def expire_token(parts: Parts, call: Call, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)


@handles(DescribeDelegationTokenRequest)
def describe_tokens(
    parts: Parts, call: Call, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=[])
