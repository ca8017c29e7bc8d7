"""Delegation tokens: create, renew, expire, list.

CreateDelegationToken (38): versions 0 to 3
     1  over quota, the answer is sent before throttling
     2  flexible
     3  adds owner_principal_type, owner_principal_name; answer adds token_requester_principal_type,
        token_requester_principal_name

RenewDelegationToken (39): versions 0 to 2
     1  over quota, the answer is sent before throttling
     2  flexible

ExpireDelegationToken (40): versions 0 to 2
     1  over quota, the answer is sent before throttling
     2  flexible

DescribeDelegationToken (41): versions 0 to 3
     1  over quota, the answer is sent before throttling
     2  flexible
     3  answer adds token_requester_principal_type, token_requester_principal_name
"""

from __future__ import annotations

from ottla.wire.schema import at, blob, i16, i32, i64, message, nested, string


@nested
class CreatableRenewers:
    principal_type: string
    principal_name: string


@message(38, versions=(0, 3), flexible=2)
class CreateDelegationTokenRequest:
    owner_principal_type: string | None = at(3, default="")
    owner_principal_name: string | None = at(3, default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: i64


@message(38, versions=(0, 3), flexible=2)
class CreateDelegationTokenResponse:
    error_code: i16
    principal_type: string
    principal_name: string
    token_requester_principal_type: string = at(3, default="")
    token_requester_principal_name: string = at(3, default="")
    issue_timestamp_ms: i64
    expiry_timestamp_ms: i64
    max_timestamp_ms: i64
    token_id: string
    hmac: blob
    throttle_time_ms: i32 = at(default=0)


@message(39, versions=(0, 2), flexible=2)
class RenewDelegationTokenRequest:
    hmac: blob
    renew_period_ms: i64


@message(39, versions=(0, 2), flexible=2)
class RenewDelegationTokenResponse:
    error_code: i16
    expiry_timestamp_ms: i64
    throttle_time_ms: i32 = at(default=0)


@message(40, versions=(0, 2), flexible=2)
class ExpireDelegationTokenRequest:
    hmac: blob
    expiry_time_period_ms: i64


@message(40, versions=(0, 2), flexible=2)
class ExpireDelegationTokenResponse:
    error_code: i16
    expiry_timestamp_ms: i64
    throttle_time_ms: i32 = at(default=0)


@nested
class DescribeDelegationTokenOwner:
    principal_type: string
    principal_name: string


@message(41, versions=(0, 3), flexible=2)
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None


@nested
class DescribedDelegationTokenRenewer:
    principal_type: string
    principal_name: string


@nested
class DescribedDelegationToken:
    principal_type: string
    principal_name: string
    token_requester_principal_type: string = at(3, default="")
    token_requester_principal_name: string = at(3, default="")
    issue_timestamp: i64
    expiry_timestamp: i64
    max_timestamp: i64
    token_id: string
    hmac: blob
    renewers: list[DescribedDelegationTokenRenewer]


@message(41, versions=(0, 3), flexible=2)
class DescribeDelegationTokenResponse:
    error_code: i16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: i32 = at(default=0)
