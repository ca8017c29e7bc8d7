"""The calls that only a secured broker has a use for, answered as Kafka does when security is off.

Delegation tokens (38-41): not on a plain connection. SASL (17, 36): nobody asked for it.
SCRAM credentials (50, 51): there are none, and none can be kept.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.wire.messages.auth import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
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

if TYPE_CHECKING:
    from ottla.handlers.call import Steps

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
        token_id="",
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


@handles(SaslHandshakeRequest)
def handshake(parts: Parts, call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


@handles(SaslAuthenticateRequest)
def authenticate(parts: Parts, call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message, auth_bytes=b"")


@handles(DescribeUserScramCredentialsRequest)
def describe_scram(
    parts: Parts, call: Call, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    times = Counter(user.name for user in request.users or ())
    results = []
    for name, count in times.items():
        code = ErrorCode.RESOURCE_NOT_FOUND if count == 1 else ErrorCode.DUPLICATE_RESOURCE
        message = f"Attempt to describe a user credential that does not exist: {name}"
        if count > 1:
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        results.append(
            DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message, credential_infos=[])
        )
        yield
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message="", results=results)


@handles(AlterUserScramCredentialsRequest)
def alter_scram(
    parts: Parts, call: Call, request: AlterUserScramCredentialsRequest
) -> Steps[AlterUserScramCredentialsResponse]:
    absent = "Attempt to delete a user credential that does not exist"
    off = "Security is off: credentials are not kept"
    answers = {one.name: (ErrorCode.RESOURCE_NOT_FOUND, absent) for one in request.deletions}
    answers |= {one.name: (ErrorCode.SECURITY_DISABLED, off) for one in request.upsertions}
    results = []
    for name, (code, message) in answers.items():
        results.append(AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message))
        yield
    return AlterUserScramCredentialsResponse(results=results)
