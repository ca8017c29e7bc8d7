"""Client of a schema registry over HTTP: Confluent's and compatible ones (Apicurio under /apis/ccompat/v7, Karapace).

    registry = Registry("https://registry:8081", user="me", password="secret", ca="ca.pem")
    Registry("https://registry:8081", user="me", password_file="/run/secrets/registry")     or password_env="NAME"
    registry.latest("orders-value")                     the newest schema of a subject
    registry.topic("orders")                            the same, by the usual name for a topic's values
    registry.version("orders-value", 3)                 one of its versions
    registry.by_id(7)                                   the schema that the header of a value names
    registry.register("orders-value", "order.avsc")     the schema under this subject, added to it if it is not there

An id always means the same schema, so each is fetched once per process. Spark keeps its Python workers, so a batch of a
million values makes no requests. A registry travels to the workers as a value: the address and the credentials.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ottla.client.failure import Failed, Unreachable
from ottla.client.secret import resolve

ATTEMPTS: Final = 4
PAUSE_S: Final = 0.2  # before the second attempt; doubled before each next one
ANSWER_MAX: Final = 16 << 20  # bytes; schemas are far smaller
REFERENCES_MAX: Final = 256  # schemas that one schema needs
ID_MAX: Final = 2**31 - 1  # ids are signed numbers of four bytes
SAID_MAX: Final = 200  # characters of a registry's error text in a message
CONTENT: Final = "application/vnd.schemaregistry.v1+json"
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
SUFFIXES: Final = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON}


class Missing(Failed):
    """The registry has no such subject, version or id."""


class InvalidSchema(Failed):
    """The schema is invalid, or does not fit the request."""


@dataclass(frozen=True)
class Reference:
    """A schema that another one needs, and the name by which it refers to it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Registered:
    """One schema in a registry; `decode` and `encode` accept it in place of a file."""

    registry: Registry
    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    subject: str | None = None

    def __str__(self) -> str:
        return f"schema {self.id}" + (f" ({self.subject})" if self.subject else "")

    def collect_references(self) -> dict[str, Registered]:
        """Every schema that this one refers to, directly or not, by name; dependencies first."""
        found: dict[str, Registered] = {}
        fetched: dict[tuple[str, int], Registered] = {}

        def put(references: tuple[Reference, ...], within: tuple[tuple[str, int], ...]) -> None:
            for reference in references:
                place = (reference.subject, reference.version)
                if place in within:
                    raise InvalidSchema(
                        f"{self} needs version {reference.version} of {reference.subject}, which needs itself: "
                        f"register it without that reference"
                    )
                if place not in fetched:
                    if len(fetched) == REFERENCES_MAX:
                        raise InvalidSchema(f"{self} needs more than {REFERENCES_MAX} other schemas: split it up")
                    fetched[place] = self.registry.version(*place)
                    put(fetched[place].references, (*within, place))
                found[reference.name] = fetched[place]

        put(self.references, ())
        return found


@dataclass(frozen=True)
class Registry:
    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None  # PEM file of the CA to trust, if the system does not trust it
    certificate: str | None = None  # PEM files of the client certificate
    key: str | None = None
    timeout_s: float = 10.0
    password_file: str | None = None  # instead of the password: a file that the workers read
    password_env: str | None = None

    def latest(self, subject: str) -> Registered:
        return self.version(subject, "latest")

    def topic(self, topic: str, *, key: bool = False) -> Registered:
        return self.latest(f"{topic}-{'key' if key else 'value'}")

    def version(self, subject: str, version: int | str) -> Registered:
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        return self._read_registered(self._ask("GET", path), subject=subject)

    def by_id(self, number: int) -> Registered:
        if number > ID_MAX:  # registries respond to this in different ways
            raise Missing(f"{self} cannot have a schema {number}: ids go up to {ID_MAX}")
        known = FETCHED.get((self, number))
        if known is None:
            answer = self._ask("GET", f"/schemas/ids/{number}")
            known = FETCHED[self, number] = self._read_registered({**answer, "id": number})
        return known

    def fetch_serialized(self, number: int) -> str | None:
        """A Protobuf schema as compiled by its registry; None if this registry only has the text."""
        text = str(self._ask("GET", f"/schemas/ids/{number}?format=serialized").get("schema", ""))
        try:
            base64.b64decode(text, validate=True)
        except ValueError:
            return None
        return text

    def register(
        self, subject: str, schema: Any, *, kind: str | None = None, references: tuple[Reference, ...] = ()
    ) -> Registered:
        """`schema` is a file (.avsc, .proto, .json), a text, or the result of json.loads."""
        text, kind = schema_text(schema, kind)
        body: dict[str, Any] = {"schema": text}
        if kind != AVRO:
            body["schemaType"] = kind
        if references:
            body["references"] = [vars(reference) for reference in references]
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        return self._read_registered(
            {**answer, "schema": text, "schemaType": kind, "references": body.get("references")}, subject
        )

    def _read_registered(self, answer: dict[str, Any], subject: str | None = None) -> Registered:
        try:
            references = tuple(
                Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in answer.get("references") or ()
            )
            kind, number = str(answer.get("schemaType") or AVRO), int(answer["id"])
            if not 0 <= number <= ID_MAX:
                raise ValueError(f"{number} is no id")
            return Registered(self, number, kind, str(answer["schema"]), references, subject)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._nonsense(answer) from None

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request with retries: servers that are starting, restarting or overloaded get more time."""
        pause_s = PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = self._once(method, path, body)
                break
            except urllib.error.HTTPError as error:
                if error.code < 500 or attempt == ATTEMPTS:
                    raise self._refusal(path, error) from None
            except (OSError, ValueError, http.client.HTTPException) as error:  # no response, or neither HTTP nor JSON
                if attempt == ATTEMPTS or is_lasting(error):
                    raise self._silence(error) from None
            time.sleep(pause_s)
            pause_s *= 2
        if not isinstance(answer, dict):
            raise self._nonsense(answer)
        return answer

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # an incomplete IPv6 address, a port that is not a number
            known = False
        if not known:
            raise Failed(
                f"the registry's address {redact_url(self.url)!r} is not valid: it looks like http://registry:8081"
            )
        user, password = self.user or unquote(parts.username or ""), self._password() or unquote(parts.password or "")
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        request = urllib.request.Request(bare + path, method=method, headers={"Accept": f"{CONTENT}, application/json"})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", CONTENT)
        if user:
            request.add_header("Authorization", f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}")
        context = self._context() if parts.scheme == "https" else None
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), Redirects(self))
        with opener.open(request, timeout=self.timeout_s) as answer:
            content = answer.read(ANSWER_MAX + 1)
        if len(content) > ANSWER_MAX:
            raise Failed(
                f"{self} answers with more than {ANSWER_MAX >> 20} MiB, which is not a schema: check the address"
            )
        try:
            return json.loads(content)
        except RecursionError:
            raise self._nonsense(content[:SAID_MAX].decode(errors="replace")) from None

    def _password(self) -> str | None:
        """The current password on this machine."""
        said = {"password": self.password, "password.file": self.password_file, "password.env": self.password_env}
        return resolve({name: value for name, value in said.items() if value}).get("password")

    def _nonsense(self, answer: Any) -> Failed:
        return Failed(f"{self} does not answer as a schema registry does: {brief(answer)}")

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # also ssl.SSLError: a file that is not PEM
            files = ", ".join(file for file in (self.ca, self.certificate, self.key) if file)
            raise Failed(f"{self}: cannot use {files} as PEM files on this machine: {error}") from None
        return context

    def _refusal(self, path: str, error: urllib.error.HTTPError) -> Failed:
        try:
            said = json.loads(error.read(ANSWER_MAX)).get("message") or error.reason
        except (OSError, ValueError, AttributeError, RecursionError, http.client.HTTPException):
            said = error.reason
        said = brief(said)
        if error.code in (401, 403):
            return Failed(f"{self} refuses access ({error.code} {said}): give a valid user and password")
        if error.code == 404:
            return Missing(
                f"{self} has nothing at {path.partition('?')[0]} ({said}): check the subject, the id and the address"
            )
        return Failed(f"{self} refuses {path.partition('?')[0]}: {error.code} {said}")

    def _silence(self, error: Exception) -> Failed:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return Failed(
                f"{self} shows a certificate that is not trusted ({reason.verify_message}): give its authority as ca"
            )
        return Unreachable(f"{self} cannot be reached ({brief(reason)}): check the address and that it runs")

    def __str__(self) -> str:
        return f"the registry at {redact_url(self.url)}"

    def __repr__(self) -> str:
        return f"Registry({redact_url(self.url)!r})"


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: another host would get our password, and we would trust its schemas."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        there = brief(redact_url(newurl))
        raise Failed(f"{self._registry} redirects to {there}: if you trust that, give it as the registry's address")


FETCHED: dict[tuple[Registry, int], Registered] = {}


def redact_url(url: str) -> str:
    """Without user, password and query, even if the URL is malformed."""
    scheme, sign, rest = url.partition("://")
    return (scheme + sign if sign else "") + (rest or scheme).rpartition("@")[2].partition("?")[0]


def brief(said: Any) -> str:
    return " ".join(str(said).split())[:SAID_MAX]


def is_lasting(error: Exception) -> bool:
    return isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)


def schema_text(schema: Any, kind: str | None = None) -> tuple[str, str]:
    """The text and the kind of a schema given as a file, as text, or as JSON values; Avro is the default kind."""
    if isinstance(schema, dict | list):
        return json.dumps(schema), kind or AVRO
    if isinstance(schema, Path) or (isinstance(schema, str) and Path(schema).suffix in SUFFIXES and "\n" not in schema):
        path = Path(schema)
        try:
            return path.read_text(), kind or SUFFIXES.get(path.suffix, AVRO)
        except (OSError, UnicodeDecodeError) as error:
            raise Failed(f"cannot read the schema {path}: {error}") from None
    if not isinstance(schema, str):
        raise Failed(f"a schema is a file, a text or a registered one, not {type(schema).__name__}")
    return schema, kind or AVRO
