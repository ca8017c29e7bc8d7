"""Who may speak to the console, asked of the guard itself: hosts, origins, logins, sizes; HTTP and websockets."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest

from ottla.console.web.guard import ATTEMPTS_MAX, BODY_MAX, ConsoleKeys, Guard

if TYPE_CHECKING:
    from collections.abc import MutableMapping

HOST = ("host", "127.0.0.1:8190")
OURS = ("origin", "http://127.0.0.1:8190")
HTML = ("accept", "text/html")
REFUSED = 1008


class Inner:
    """The application behind the guard: counts who came through."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append(scope["ottla_user"])
        if scope["type"] == "http":
            taken = 0
            while (message := await receive())["type"] == "http.request":
                taken += len(message.get("body", b""))
                if not message.get("more_body"):
                    break
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"%d" % taken})
        else:
            await send({"type": "websocket.accept"})


def ask(
    guard: Guard, *headers: tuple[str, str], kind: str = "http", method: str = "GET", path: str = "/", body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    """Status (or the code that closed a websocket, 0: accepted), headers and content."""
    scope = {"type": kind, "method": method, "path": path, "scheme": "http", "query_string": b"",
             "headers": [(name.encode(), value.encode()) for name, value in headers]}  # fmt: skip
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body} if kind == "http" else {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    first = sent[0]
    if kind == "websocket":
        return (0 if first["type"] == "websocket.accept" else first["code"]), {}, b""
    found = {name.decode(): value.decode() for name, value in first["headers"]}
    return first["status"], found, b"".join(message.get("body", b"") for message in sent[1:])


def guarded(keys: ConsoleKeys | None = None) -> tuple[Guard, Inner]:
    inner = Inner()
    return Guard(inner, keys or ConsoleKeys(), {"127.0.0.1", "localhost"}), inner


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8190", "", "[::1", "127.0.0.2:8190", "a:b:c"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_another_host_is_refused(host: str, kind: str) -> None:
    guard, inner = guarded()
    status, _, _ = ask(guard, ("host", host), ("origin", f"http://{host}"), kind=kind)
    assert status in (403, REFUSED)
    assert not inner.calls


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8190", ""]
)
def test_another_origin_is_refused(origin: str) -> None:
    guard, inner = guarded()
    assert ask(guard, HOST, ("origin", origin), kind="websocket")[0] == REFUSED
    assert ask(guard, HOST, ("origin", origin), method="POST")[0] == 403
    assert not inner.calls


def test_a_websocket_or_a_post_without_an_origin_is_refused() -> None:
    guard, inner = guarded()
    assert ask(guard, HOST, kind="websocket")[0] == REFUSED
    assert ask(guard, HOST, method="POST")[0] == 403
    assert not inner.calls
    assert ask(guard, HOST, OURS, kind="websocket")[0] == 0


def test_answers_forbid_frames_and_anything_from_elsewhere() -> None:
    guard, _ = guarded()
    status, headers, _ = ask(guard, HOST)
    assert status == 200
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'self'" in headers["content-security-policy"]


def test_without_a_login_nothing_is_served() -> None:
    guard, inner = guarded(ConsoleKeys(token="secret"))
    assert ask(guard, HOST)[0] == 401
    assert ask(guard, HOST, OURS, kind="websocket")[0] == REFUSED
    status, headers, _ = ask(guard, HOST, HTML)
    assert (status, headers["location"]) == (303, "/login")
    assert ask(guard, HOST, ("cookie", "ottla_console=guess"))[0] == 401
    assert ask(guard, HOST, ("cookie", 'ottla_console="\x01;;=='))[0] == 401
    assert ask(guard, HOST, ("authorization", "Basic !!!"))[0] == 401
    assert not inner.calls


def test_a_token_opens_and_its_cookie_is_out_of_reach() -> None:
    guard, inner = guarded(ConsoleKeys(token="secret"))
    status, headers, _ = ask(guard, HOST, OURS, method="POST", path="/login", body=b"secret=secret")
    assert status == 303
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    kept = ("cookie", cookie.partition(";")[0])
    assert ask(guard, HOST, kept)[0] == 200
    assert ask(guard, HOST, OURS, kept, kind="websocket")[0] == 0
    assert ask(guard, HOST, ("authorization", "Bearer secret"))[0] == 200
    assert ask(guard, HOST, ("authorization", "Bearer wrong"))[0] == 401
    assert inner.calls == ["token"] * 3


def test_user_and_password_belong_together() -> None:
    guard, inner = guarded(ConsoleKeys(user="ada", password="lovelace"))
    assert ask(guard, HOST, OURS, method="POST", path="/login", body=b"user=bob&secret=lovelace")[0] == 401
    assert ask(guard, HOST, OURS, method="POST", path="/login", body=b"user=ada&secret=lovelace")[0] == 303
    basic = base64.b64encode(b"ada:lovelace").decode()
    assert ask(guard, HOST, ("authorization", f"Basic {basic}"))[0] == 200
    assert inner.calls == ["ada"]


def test_guessing_is_stopped() -> None:
    guard, _ = guarded(ConsoleKeys(token="secret"))
    for _ in range(ATTEMPTS_MAX):
        assert ask(guard, HOST, ("authorization", "Bearer wrong"))[0] == 401
    assert ask(guard, HOST, ("authorization", "Bearer secret"))[0] == 401
    assert ask(guard, HOST, OURS, method="POST", path="/login", body=b"secret=secret")[0] == 429


def test_the_login_page_shows_nothing_that_was_sent() -> None:
    guard, _ = guarded(ConsoleKeys(token="secret"))
    status, _, page = ask(guard, HOST, OURS, method="POST", path="/login", body=b"secret=<script>alert(1)</script>")
    assert status == 401
    assert b"<script" not in page


def test_large_requests_are_refused_whatever_they_declare() -> None:
    guard, inner = guarded()
    assert ask(guard, HOST, OURS, ("content-length", str(BODY_MAX + 1)), method="POST")[0] == 403
    assert not inner.calls
    assert ask(guard, HOST, OURS, method="POST", body=b"x" * (BODY_MAX + 1))[2] == b"0"
