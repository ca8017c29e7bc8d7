"""Access control of the console: a wrapper around the whole application, for HTTP and websockets.

host      the Host header must be a name of the console, against DNS rebinding
origin    websockets and POSTs must come from a page of the console
login     by token, or user and password, kept in a cookie that is HttpOnly and SameSite. Programs may send
          `Authorization: Bearer TOKEN`, or Basic with user and password
size      a request has at most `BODY_MAX` bytes

A rejected request gets a short text and no cookie. Response headers forbid frames, MIME sniffing and foreign content.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import html
import ipaddress
import secrets
import time
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE: Final = "ottla_console"
LOGIN: Final = "/login"
BODY_MAX: Final = 1 << 20
SESSION_S: Final = 12 * 3600
SESSIONS_MAX: Final = 1000
ATTEMPTS_MAX: Final = 20  # failed logins per minute, from all clients together
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
HEADERS: Final = [
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    # With "no-referrer" a browser sends "Origin: null" with a form, and nobody could log in.
    (b"referrer-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        b"img-src 'self' data:; font-src 'self' data:; connect-src 'self' ws: wss:; frame-ancestors 'none'; "
        b"base-uri 'none'; form-action 'self'; object-src 'none'",
    ),
]
PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Ottla console</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root{{color-scheme:light dark}}body{{font:16px system-ui,sans-serif;display:grid;place-items:center;min-height:90vh;
background:light-dark(#f6f7f9,#14171c)}}form{{background:light-dark(#fff,#1d2127);padding:2rem;border-radius:12px;
box-shadow:0 1px 4px #0003;width:min(20rem,85vw)}}input,button{{font:inherit;width:100%;box-sizing:border-box;
padding:.6rem;margin:.3rem 0 .8rem;border-radius:6px;border:1px solid #8886}}button{{background:#2f6fde;color:#fff;border:0}}
p{{color:#c33}}</style><form method="post" action="/login"><h1 style="font-size:1.3rem">Ottla console</h1>{problem}{fields}
<button>Log in</button></form></html>"""  # noqa: E501


class ConsoleKeys:
    """Credentials and sessions. Without a token and a user, no login is needed."""

    def __init__(self, token: str | None = None, user: str | None = None, password: str | None = None) -> None:
        self._token = token
        self._user = user
        self._password = password
        self._sessions: dict[str, tuple[str, float]] = {}
        self._wrong: list[float] = []

    @property
    def needed(self) -> bool:
        return self._token is not None or self._user is not None

    @property
    def by_user(self) -> bool:
        return self._user is not None

    def fits(self, user: str, secret: str) -> str | None:
        """The user's name if the secret is right. Compares in constant time."""
        if self._user is not None and self._password is not None:
            same = hmac.compare_digest(user.encode(), self._user.encode())
            if hmac.compare_digest(secret.encode(), self._password.encode()) and same:
                return self._user
        if self._token is not None and hmac.compare_digest(secret.encode(), self._token.encode()):
            return "token"
        return None

    def is_locked(self) -> bool:
        now = time.monotonic()
        self._wrong = [moment for moment in self._wrong if moment > now - 60]
        return len(self._wrong) >= ATTEMPTS_MAX

    def miss(self) -> None:
        self._wrong.append(time.monotonic())

    def begin(self, name: str) -> str:
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = (name, time.monotonic() + SESSION_S)
        return session

    def who(self, headers: dict[str, str]) -> str | None:
        if not self.needed:
            return "local"
        session = cookie(headers.get("cookie", ""))
        name, until = self._sessions.get(session, ("", 0.0))
        if until > time.monotonic():
            return name
        kind, _, rest = headers.get("authorization", "").partition(" ")
        if not rest or self.is_locked():
            return None
        found = None
        if kind.lower() == "bearer":
            found = self.fits("", rest.strip()) if self._token is not None else None
        elif kind.lower() == "basic":
            try:
                user, _, secret = base64.b64decode(rest, validate=True).decode().partition(":")
            except ValueError:
                return None
            found = self.fits(user, secret)
        if found is None:
            self.miss()
        return found


class Guard:
    def __init__(self, app: Application, keys: ConsoleKeys, hosts: set[str], *, any_address: bool = False) -> None:
        self.app = app
        self._keys = keys
        self._hosts = {host.lower() for host in hosts}
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        problem = self._problem(scope, headers)
        if problem:
            await refuse(scope, receive, send, 403, problem)
            return
        if scope["type"] == "http" and scope["path"] == LOGIN:
            await self._login(scope, receive, send)
            return
        who = self._keys.who(headers)
        if who is None:
            if scope["type"] == "http" and scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
                await answer(send, 303, b"", [(b"location", LOGIN.encode())])
            else:
                await refuse(scope, receive, send, 401, "log in first")
            return
        scope["ottla_user"] = who
        await self.app(scope, limit_body(receive), add_headers(send) if scope["type"] == "http" else send)

    def _problem(self, scope: Scope, headers: dict[str, str]) -> str | None:
        host = headers.get("host", "")
        if not self._ours(host):
            return "the console does not have this host name; see --allow-host"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "this request does not come from a page of the console"
        asks = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if origin is None and not asks:
            return "only pages of the console may do this"
        if headers.get("content-length", "0").isdecimal() and int(headers.get("content-length", "0")) > BODY_MAX:
            return f"more than {BODY_MAX >> 20} MiB"
        return None

    def _ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name.lower() in self._hosts:
            return True
        if self._any_address:
            try:
                ipaddress.ip_address(name)
            except ValueError:
                return False
            return True
        return False

    async def _login(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._keys.needed:
            await answer(send, 303, b"", [(b"location", b"/")])
            return
        if scope["method"] == "GET":
            await answer(send, 200, self._page(""), HTML)
            return
        if self._keys.is_locked():
            await answer(send, 429, self._page("Too many attempts: wait a minute."), HTML)
            return
        fields = parse_qs((await body(receive)).decode("latin-1"), max_num_fields=4)
        name = self._keys.fits(fields.get("user", [""])[0], fields.get("secret", [""])[0])
        if name is None:
            self._keys.miss()
            await asyncio.sleep(0.3)
            await answer(send, 401, self._page("Wrong token, user or password."), HTML)
            return
        session = self._keys.begin(name)
        flags = "; Secure" if scope.get("scheme") == "https" else ""
        kept = f"{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={SESSION_S}{flags}"
        await answer(send, 303, b"", [(b"location", b"/"), (b"set-cookie", kept.encode())])

    def _page(self, problem: str) -> bytes:
        user = '<label>User<input name="user" autocomplete="username" autofocus></label>' if self._keys.by_user else ""
        what = "Password" if self._keys.by_user else "Token"
        fields = f'{user}<label>{what}<input name="secret" type="password" autocomplete="current-password"></label>'
        said = f"<p>{html.escape(problem)}</p>" if problem else ""
        return PAGE.format(problem=said, fields=fields).encode()


HTML: Final = [(b"content-type", b"text/html; charset=utf-8")]


def cookie(text: str) -> str:
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


async def body(receive: Receive) -> bytes:
    data = b""
    while len(data) <= 1 << 14:
        message = await receive()
        data += message.get("body", b"")
        if not message.get("more_body"):
            break
    return data[: 1 << 14]


def limit_body(receive: Receive) -> Receive:
    """Pass the body on up to the limit, also when its length was not declared."""
    taken = 0

    async def take() -> Message:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > BODY_MAX:
                return {"type": "http.disconnect"}
        return message

    return take


def add_headers(send: Send) -> Send:
    async def pass_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS]
        await send(message)

    return pass_on


async def answer(send: Send, status: int, content: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = [(b"content-length", str(len(content)).encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length, *HEADERS]})
    await send({"type": "http.response.body", "body": content})


async def refuse(scope: Scope, receive: Receive, send: Send, status: int, text: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": text})
        return
    await answer(send, status, f"{text}\n".encode(), [(b"content-type", b"text/plain; charset=utf-8")])
