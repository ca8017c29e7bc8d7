"""SASL authentication, SCRAM credentials stored in the cluster, and the principal that a broker forwards.

SaslHandshake (17): versions 0 to 1
     1  the tokens follow as SaslAuthenticate requests, not as bare frames

SaslAuthenticate (36): versions 0 to 2
     1  answer adds session_lifetime_ms
     2  flexible

DescribeUserScramCredentials (50): version 0

AlterUserScramCredentials (51): version 0

DefaultPrincipalData: version 0
"""

from __future__ import annotations

from ottla.wire.schema import at, blob, boolean, i8, i16, i32, i64, message, nested, string


@message(17, versions=(0, 1))
class SaslHandshakeRequest:
    mechanism: string


@message(17, versions=(0, 1))
class SaslHandshakeResponse:
    error_code: i16
    mechanisms: list[string]


@message(36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest:
    auth_bytes: blob


@message(36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    error_code: i16
    error_message: string | None
    auth_bytes: blob
    session_lifetime_ms: i64 = at(1, default=0)


@nested
class UserName:
    name: string


@message(50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None


@nested
class CredentialInfo:
    mechanism: i8
    iterations: i32


@nested
class DescribeUserScramCredentialsResult:
    user: string
    error_code: i16
    error_message: string | None
    credential_infos: list[CredentialInfo]


@message(50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: i32 = at(default=0)
    error_code: i16
    error_message: string | None
    results: list[DescribeUserScramCredentialsResult]


@nested
class ScramCredentialDeletion:
    name: string
    mechanism: i8


@nested
class ScramCredentialUpsertion:
    name: string
    mechanism: i8
    iterations: i32
    salt: blob
    salted_password: blob


@message(51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@nested
class AlterUserScramCredentialsResult:
    user: string
    error_code: i16
    error_message: string | None


@message(51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: i32 = at(default=0)
    results: list[AlterUserScramCredentialsResult]


@message(None, versions=(0, 0), flexible=0)
class DefaultPrincipalData:
    type: string
    name: string
    token_authenticated: boolean
