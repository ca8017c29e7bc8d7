"""SCRAM credentials of users: DescribeUserScramCredentials (50) and AlterUserScramCredentials (51).

They are stored in the metadata store, whether a listener uses SCRAM or not. Codes and messages are Kafka's.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.security.credential import ITERATIONS_MAX, ITERATIONS_MIN, NUMBERS, credential, decode, encode
from ottla.wire.messages.auth import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.handlers.call import Steps
    from ottla.wire.messages.auth import ScramCredentialUpsertion

TWICE = "A user credential cannot be altered twice in the same request"
ABSENT = "Attempt to delete a user credential that does not exist"


@handles(DescribeUserScramCredentialsRequest)
def describe(
    parts: Parts, call: Call, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    users = parts.metadata.image.users
    times = Counter(user.name for user in request.users or ())
    results = []
    for name in times or sorted(users):
        infos = list_credentials(users.get(name, {}))
        code, message = ErrorCode.NONE, ""
        if times[name] > 1:
            code = ErrorCode.DUPLICATE_RESOURCE
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif not infos and times:
            code = ErrorCode.RESOURCE_NOT_FOUND
            message = f"Attempt to describe a user credential that does not exist: {name}"
        if infos or code:
            results.append(
                DescribeUserScramCredentialsResult(
                    user=name, error_code=code, error_message=message, credential_infos=[] if code else infos
                )
            )
        yield
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message="", results=results)


def list_credentials(kept: Mapping[str, str]) -> list[CredentialInfo]:
    infos = []
    for number, mechanism in NUMBERS.items():
        try:
            iterations = decode(kept[mechanism]).iterations if mechanism in kept else None
        except ValueError:
            iterations = None
        if iterations is not None:
            infos.append(CredentialInfo(mechanism=number, iterations=iterations))
    return infos


@handles(AlterUserScramCredentialsRequest)
async def alter(
    parts: Parts, call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    wanted: list[tuple[str, int, ScramCredentialUpsertion | None]] = [
        (one.name, one.mechanism, None) for one in request.deletions
    ]
    wanted += ((one.name, one.mechanism, one) for one in request.upsertions)
    times = Counter(name for name, _, _ in wanted)
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for name, number, upsertion in wanted:
        await parts.metadata.turns.pause()
        code, message = ErrorCode.NONE, None
        try:
            if times[name] > 1:
                raise BrokerError(ErrorCode.DUPLICATE_RESOURCE, TWICE)
            mechanism = mechanism_of(name, number)
            text = None if upsertion is None else credential_of(mechanism, upsertion)
            parts.controller.check_controller()
            if text is None and mechanism not in parts.metadata.image.users.get(name, {}):
                raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, ABSENT)
            await parts.controller.alter_user(name, {mechanism: text})
        except BrokerError as error:
            code, message = error.code, error.message
        results[name] = AlterUserScramCredentialsResult(user=name, error_code=code, error_message=message)
    return AlterUserScramCredentialsResponse(results=list(results.values()))


def mechanism_of(user: str, number: int) -> str:
    """The name of the mechanism with this number."""
    if not user:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = NUMBERS.get(number)
    if mechanism is None:
        raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def credential_of(mechanism: str, wish: ScramCredentialUpsertion) -> str:
    if wish.iterations < ITERATIONS_MIN:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if wish.iterations > ITERATIONS_MAX:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return encode(credential(mechanism, bytes(wish.salt), bytes(wish.salted_password), wish.iterations))
