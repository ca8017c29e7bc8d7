"""Delegation tokens: CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40) and
DescribeDelegationToken (41). Codes and rights are Kafka's.

Only an authenticated client may use these, and not one that logged in with a token: a token cannot make a token.
Everybody may see, renew and expire their own tokens. Making one for another principal needs `CreateTokens` on that
user. Seeing tokens of others needs `DescribeTokens` on their owner or `Describe` on the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.security.principal import ANONYMOUS, USER, Principal
from ottla.wire.access import Operation, ResourceType
from ottla.wire.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.cluster.token_store import TokenStore
    from ottla.handlers.call import Steps
    from ottla.security.token import Token

RENEWERS_MAX = 1000  # every broker stores them


@handles(CreateDelegationTokenRequest)
async def create(parts: Parts, call: Call, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    requester = owner = call.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    renewers = [Principal(one.principal_type, one.principal_name) for one in request.renewers]
    token, password, code = None, b"", ErrorCode.NONE
    try:
        check_connection(call)
        if owner != requester and not allows(parts, call, Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if any(one.kind != USER for one in (owner, *renewers)):
            raise BrokerError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        if len(renewers) > RENEWERS_MAX:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        tokens = enabled(parts)
        token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
        password = tokens.password(token)
    except BrokerError as error:
        code = error.code
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1 if token is None else token.issued_ms,
        expiry_timestamp_ms=-1 if token is None else token.expires_ms,
        max_timestamp_ms=-1 if token is None else token.ends_ms,
        token_id="" if token is None else token.id,
        hmac=password,
    )


@handles(RenewDelegationTokenRequest)
async def renew(parts: Parts, call: Call, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    password, period_ms = bytes(request.hmac), request.renew_period_ms
    code, expires_ms = await change(parts, call, lambda tokens: tokens.renew(password, call.principal, period_ms))
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)


@handles(ExpireDelegationTokenRequest)
async def expire(parts: Parts, call: Call, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    password, period_ms = bytes(request.hmac), request.expiry_time_period_ms
    code, expires_ms = await change(parts, call, lambda tokens: tokens.expire(password, call.principal, period_ms))
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms)


async def change(parts: Parts, call: Call, how: Callable[[TokenStore], Awaitable[int]]) -> tuple[ErrorCode, int]:
    """When the token expires now; or the error, and -1."""
    try:
        check_connection(call)
        return ErrorCode.NONE, await how(enabled(parts))
    except BrokerError as error:
        return error.code, -1


@handles(DescribeDelegationTokenRequest)
def describe(
    parts: Parts, call: Call, request: DescribeDelegationTokenRequest
) -> Steps[DescribeDelegationTokenResponse]:
    found: list[DescribedDelegationToken] = []
    try:
        check_connection(call)
        tokens = enabled(parts)
    except BrokerError as error:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])
    owners = None
    if request.owners is not None:
        owners = {Principal(one.principal_type, one.principal_name) for one in request.owners}
    for token in list(tokens.tokens.values()) if owners is None or owners else []:
        asked = owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers))
        if asked and may_see(parts, call, token):
            found.append(show(token, tokens.password(token)))
        yield
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=found)


def may_see(parts: Parts, call: Call, token: Token) -> bool:
    return (
        token.concerns(call.principal)
        or allows(parts, call, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
        or allows(parts, call, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def show(token: Token, password: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.ends_ms,
        token_id=token.id,
        hmac=password,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=one.kind, principal_name=one.name) for one in token.renewers
        ],
    )


def check_connection(call: Call) -> None:
    """Refuse unauthenticated clients, and clients that logged in with a token."""
    login = None if call.peer is None else call.peer.login
    if (call.principal == ANONYMOUS) if login is None else login.by_token:
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def enabled(parts: Parts) -> TokenStore:
    if parts.tokens is None:
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return parts.tokens


def allows(parts: Parts, call: Call, operation: Operation, kind: ResourceType, name: str) -> bool:
    if parts.authorizer is None:
        return True
    return parts.authorizer.allows(str(call.principal), call.host, operation, kind, name)
