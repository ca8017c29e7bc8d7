"""Delegation tokens: create, renew, expire, list. A client logs in with the token's id and `password`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.failure import check
from ottla.wire.messages.tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.cluster import Cluster


class Token(NamedTuple):
    id: str
    password: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    ends_ms: int  # it cannot be renewed beyond this time


def create_token(
    cluster: Cluster, *, owner: str | None = None, renewers: Sequence[str] = (), lifetime_ms: int = -1
) -> Token:
    """Create a token, for the current user or another. Without a lifetime: as long as the broker allows."""
    kind, name = split(owner) if owner else ("", "")
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind or None,
        owner_principal_name=name or None,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(split, renewers)],
        max_lifetime_ms=lifetime_ms,
    )

    def attempt() -> Token:
        made = cluster.controller().ask(request, CreateDelegationTokenResponse)
        check("making a token", made.error_code)
        return Token(
            made.token_id,
            base64.b64encode(made.hmac).decode(),
            f"{made.principal_type}:{made.principal_name}",
            f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
            tuple(renewers),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
        )

    return cluster.retrying(attempt, what="making a token")


def renew_token(cluster: Cluster, password: str, period_ms: int = -1) -> int:
    """Renew a token; returns its new expiry time."""
    request = RenewDelegationTokenRequest(hmac=base64.b64decode(password), renew_period_ms=period_ms)

    def attempt() -> int:
        answer = cluster.controller().ask(request, RenewDelegationTokenResponse)
        check("renewing the token", answer.error_code)
        return answer.expiry_timestamp_ms

    return cluster.retrying(attempt, what="renewing a token")


def expire_token(cluster: Cluster, password: str, period_ms: int = -1) -> int:
    """Expire a token after this period; now if it is negative. Returns its expiry time."""
    request = ExpireDelegationTokenRequest(hmac=base64.b64decode(password), expiry_time_period_ms=period_ms)

    def attempt() -> int:
        answer = cluster.controller().ask(request, ExpireDelegationTokenResponse)
        check("ending the token", answer.error_code)
        return answer.expiry_timestamp_ms

    return cluster.retrying(attempt, what="ending a token")


def list_tokens(cluster: Cluster, owners: Sequence[str] | None = None) -> list[Token]:
    """The tokens that the current user may see: of these owners, or of all."""
    wanted = None
    if owners is not None:
        wanted = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in map(split, owners)
        ]
    request = DescribeDelegationTokenRequest(owners=wanted)

    def attempt() -> list[Token]:
        answer = cluster.controller().ask(request, DescribeDelegationTokenResponse)
        check("listing tokens", answer.error_code)
        return [
            Token(
                one.token_id,
                base64.b64encode(one.hmac).decode(),
                f"{one.principal_type}:{one.principal_name}",
                f"{one.token_requester_principal_type}:{one.token_requester_principal_name}",
                tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in one.renewers),
                one.issue_timestamp,
                one.expiry_timestamp,
                one.max_timestamp,
            )
            for one in sorted(answer.tokens, key=lambda one: (one.principal_name, one.issue_timestamp))
        ]

    return cluster.retrying(attempt, what="listing tokens")


def split(principal: str) -> tuple[str, str]:
    """`User:ann`, or only the name of a user."""
    kind, colon, name = principal.partition(":")
    return (kind, name) if colon else ("User", principal)
