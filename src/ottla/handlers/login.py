"""SASL authentication: SaslHandshake (17) and SaslAuthenticate (36). The exchange itself is in `security/login`.

SaslHandshake     0  tokens follow as bare frames, which the listener's `LoginGate` handles
                  1  tokens follow as SaslAuthenticate
SaslAuthenticate  1  the answer says how long the login is valid

A failure is answered after a delay, as in Kafka, and closes the connection. On listeners without SASL both requests are
refused.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.security.login import LoginError
from ottla.wire.messages.auth import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from typing import Any

    from ottla.handlers.call import Peer
    from ottla.security.login import Login

log = logging.getLogger("ottla.net")

OUT_OF_PLACE = "SaslAuthenticate request received after successful authentication"


@handles(SaslHandshakeRequest)
def handshake(
    parts: Parts, call: Call, request: SaslHandshakeRequest
) -> SaslHandshakeResponse | asyncio.Future[SaslHandshakeResponse]:
    login = None if call.peer is None else call.peer.login
    if call.peer is None or login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    code = login.choose(request.mechanism, call.version)
    offered = list(login.mechanisms) if code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM) else []
    answer = SaslHandshakeResponse(error_code=code, mechanisms=offered)
    if login.failed:
        log.info("a login from %s failed: %s", call.host, code.name)
        return late(call.peer, login, answer)
    return answer


@handles(SaslAuthenticateRequest)
def authenticate(
    parts: Parts, call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | asyncio.Future[SaslAuthenticateResponse]:
    login = None if call.peer is None else call.peer.login
    if call.peer is None or login is None or not login.under_way:
        code = ErrorCode.ILLEGAL_SASL_STATE
        return SaslAuthenticateResponse(error_code=code, error_message=OUT_OF_PLACE, auth_bytes=b"")
    try:
        said, lifetime_ms = login.respond(bytes(request.auth_bytes))
    except LoginError as error:
        log.info("a login from %s failed: %s", call.host, error)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        answer = SaslAuthenticateResponse(error_code=code, error_message=error.told, auth_bytes=b"")
        return late(call.peer, login, answer)
    return SaslAuthenticateResponse(
        error_code=ErrorCode.NONE, error_message="", auth_bytes=said, session_lifetime_ms=lifetime_ms
    )


def late(peer: Peer, login: Login, answer: Any) -> asyncio.Future[Any]:
    """Send the answer after a delay, then close the connection."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    future.add_done_callback(lambda _: loop.call_soon(peer.drain))
    loop.call_later(login.delay_s, lambda: None if future.done() else future.set_result(answer))
    return future
