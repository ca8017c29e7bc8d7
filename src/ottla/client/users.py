"""Users that log in with SCRAM: list, set a password, remove. A password never leaves this process."""

from __future__ import annotations

import secrets
from hashlib import pbkdf2_hmac
from typing import TYPE_CHECKING, Final

from ottla.client.failure import check, detail
from ottla.wire.messages.auth import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.client.cluster import Cluster

# The number of each mechanism in requests, and its hash.
MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
NAMES: Final = {number: name for name, (number, _) in MECHANISMS.items()}
ITERATIONS: Final = 8192
SALT_SIZE: Final = 32


def list_users(cluster: Cluster) -> dict[str, dict[str, int]]:
    """User → mechanism → iterations."""

    def attempt() -> dict[str, dict[str, int]]:
        request = DescribeUserScramCredentialsRequest(users=None)
        answer = cluster.controller().ask(request, DescribeUserScramCredentialsResponse)
        check("listing users", answer.error_code, detail(answer.error_message))
        for result in answer.results:
            check(f"user {result.user}", result.error_code, detail(result.error_message))
        return {
            result.user: {
                NAMES.get(one.mechanism, str(one.mechanism)): one.iterations for one in result.credential_infos
            }
            for result in sorted(answer.results, key=lambda result: result.user)
        }

    return cluster.retrying(attempt, what="listing users")


def set_password(
    cluster: Cluster, user: str, password: str, *, mechanisms: Iterable[str] = MECHANISMS, iterations: int = ITERATIONS
) -> None:
    """Create a user or change its password, for these mechanisms."""
    upsertions = []
    for mechanism in mechanisms:
        number, digest = MECHANISMS[mechanism]
        salt = secrets.token_bytes(SALT_SIZE)
        salted = pbkdf2_hmac(digest, password.encode(), salt, iterations)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
            )
        )
    # One at a time: a request may name a user once.
    for upsertion in upsertions:
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))


def remove_user(cluster: Cluster, user: str, mechanisms: Iterable[str]) -> None:
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism][0])
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]))


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    def attempt() -> None:
        answer = cluster.controller().ask(request, AlterUserScramCredentialsResponse)
        for result in answer.results:
            check(f"user {result.user}", result.error_code, detail(result.error_message))

    cluster.retrying(attempt, what="changing users")
