"""Delegation tokens: the same story at Apache Kafka and at Ottla, Kafka's own tool, ours, and logins with a token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import judge
import pytest
from handlers.wired import Wired
from waiting import wait_until

from ottla.embed import BrokerThread
from ottla.errors import ErrorCode
from ottla.wire.messages.acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.auth import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("client")  # with those that start Apache Kafka anyway

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OPTIONS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{MODULE} required user_ann="a" user_bob="b" user_carl="c" user_dora="d";'
    ),
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "delegation.token.secret.key": "the key of the cluster",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ann;User:ANONYMOUS",
}
WEEK_MS = 7 * 24 * 3_600_000


@pytest.fixture(scope="module")
def theirs() -> Iterator[tuple[int, int]]:
    """With ZooKeeper. Kafka 4.3.1 differs in two things: a renewal holds for delegation.token.expiry.time.ms at
    most, and a token that has expired cannot be removed."""
    kafka = judge.Kafka(version="3.9.2")
    (port,) = judge.free_ports(1)
    here = f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{port}"
    authorizer = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    kafka._settings |= {**OPTIONS, **authorizer, "listeners": here, "advertised.listeners": here}
    with kafka:
        yield kafka.port, port


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    with BrokerThread(options={**OPTIONS, "listeners": listeners}) as running:
        yield running


def port(broker: BrokerThread, listener: str) -> int:
    return int(broker.listeners[listener].rpartition(":")[2])


class Person(Wired):
    """A connection that has logged in."""

    def by_password(self, name: str) -> Person:
        assert self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        assert self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{name}\0{name[0]}".encode()), 2).error_code == 0
        return self

    def by_token(self, token_id: str, password: bytes) -> tuple[int, int]:
        """The code, and how long the login holds."""
        assert self.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        bare = f"n={token_id},r=fyko,tokenauth=true"
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=f"n,,{bare}".encode()), 2)
        if answer.error_code:
            return answer.error_code, 0
        said = bytes(answer.auth_bytes).decode()
        parts = dict(part.split("=", 1) for part in said.split(","))
        word = base64.b64encode(password)
        salted = hashlib.pbkdf2_hmac("sha256", word, base64.b64decode(parts["s"]), int(parts["i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        final = f"c=biws,r={parts['r']}"
        signature = hmac.digest(hashlib.sha256(key).digest(), f"{bare},{said},{final}".encode(), "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=f"{final},p={proof}".encode()), 2)
        return answer.error_code, answer.session_lifetime_ms

    def create(self, lifetime_ms: int = -1, owner: str = "", renewers: tuple[str, ...] = (), version: int = 3) -> Any:
        kind, _, name = owner.partition(":")
        wished = [
            CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, _, name in (one.partition(":") for one in renewers)
        ]
        return self.ask(
            CreateDelegationTokenRequest(
                owner_principal_type=kind or None,
                owner_principal_name=name or None,
                renewers=wished,
                max_lifetime_ms=lifetime_ms,
            ),
            version,
        )

    def describe(self, *owners: str, everybody: bool = False, version: int = 3) -> Any:
        pairs = [one.partition(":") for one in owners]
        wished = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, _, name in pairs]
        return self.ask(DescribeDelegationTokenRequest(owners=None if everybody else wished), version)

    def renew(self, password: bytes, period_ms: int = -1, version: int = 2) -> Any:
        return self.ask(RenewDelegationTokenRequest(hmac=password, renew_period_ms=period_ms), version)

    def expire(self, password: bytes, period_ms: int = -1, version: int = 2) -> Any:
        return self.ask(ExpireDelegationTokenRequest(hmac=password, expiry_time_period_ms=period_ms), version)


def made(answer: Any) -> tuple[Any, ...]:
    """What can be compared of a new token."""
    issued = answer.issue_timestamp_ms
    return (
        ErrorCode(answer.error_code).name,
        f"{answer.principal_type}:{answer.principal_name}",
        f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
        answer.expiry_timestamp_ms - issued,
        answer.max_timestamp_ms - issued,
        len(answer.token_id),
        len(answer.hmac),
    )


def seen(answer: Any) -> tuple[str, list[Any]]:
    return ErrorCode(answer.error_code).name, sorted(
        (one.principal_name, one.token_requester_principal_name, [by.principal_name for by in one.renewers])
        for one in answer.tokens
    )


def code(answer: Any) -> str:
    return ErrorCode(answer.error_code).name


def let(plain_port: int, who: str, operation: int, kind: int, name: str) -> None:
    with Person(plain_port) as root:
        creation = AclCreation(
            resource_type=kind, resource_name=name, resource_pattern_type=3, principal=who, host="*",
            operation=operation, permission_type=3,
        )  # fmt: skip
        assert root.ask(CreateAclsRequest(creations=[creation]), 2).results[0].error_code == 0


def story(plain_port: int, sasl_port: int) -> list[Any]:
    """Everything that can be asked, by those who may and those who may not; what came of it."""
    told: list[Any] = []
    let(plain_port, "User:carl", 13, 7, "User:bob")  # may make tokens for bob
    let(plain_port, "User:carl", 14, 7, "User:bob")  # and see bob's
    with (
        Person(plain_port) as nobody,
        Person(sasl_port).by_password("ann") as ann,
        Person(sasl_port).by_password("bob") as bob,
        Person(sasl_port).by_password("carl") as carl,
        Person(sasl_port).by_password("dora") as dora,
    ):
        told += [made(nobody.create()), code(nobody.renew(b"x")), code(nobody.expire(b"x")), seen(nobody.describe())]
        own = bob.create(renewers=("User:dora",))
        told += [made(own)]
        told += [made(bob.create(lifetime)) for lifetime in (0, 1000, 10 * WEEK_MS, 2**63 - 1)]
        told += [
            made(bob.create(owner="User:ann")),
            made(bob.create(owner="Group:bob")),
        ]
        told += [made(bob.create(renewers=("User:a", "Group:b"))), made(bob.create(owner="User:bob"))]
        given, by_right = ann.create(owner="User:bob"), carl.create(owner="User:bob")
        told += [made(given), made(by_right)]
        wait_until(lambda: len(ann.describe(everybody=True).tokens) == 8)  # Kafka's brokers hear of tokens a bit later
        told += [seen(one.describe(everybody=True)) for one in (ann, bob, carl, dora)]
        told += [
            seen(ann.describe()),
            seen(ann.describe("User:dora")),
            seen(dora.describe("User:bob")),
            seen(ann.describe("User:x")),
        ]
        told += [
            code(dora.renew(own.hmac)),
            code(carl.renew(own.hmac)),
            code(carl.renew(by_right.hmac)),
            code(bob.renew(b"x")),
        ]
        told += [code(ann.renew(own.hmac)), code(ann.renew(given.hmac, 0)), code(carl.expire(own.hmac, 5))]
        renewed = bob.renew(own.hmac, 10 * WEEK_MS)
        told += [renewed.expiry_timestamp_ms - own.max_timestamp_ms]
        with Person(sasl_port) as token:
            entered, lifetime_ms = token.by_token(own.token_id, own.hmac)
            told += [entered, 0 < lifetime_ms <= WEEK_MS, made(token.create()), code(token.renew(own.hmac))]
            told += [seen(token.describe(everybody=True)), len(token.ask(MetadataRequest(topics=[]), 1).brokers)]
        for wrong in ((own.token_id, given.hmac), ("nothing", own.hmac)):
            with Person(sasl_port) as stranger:
                told += [stranger.by_token(*wrong)[0]]
        told += [code(bob.expire(own.hmac, 0))]
        time.sleep(0.05)  # until the millisecond is over
        told += [
            code(bob.renew(own.hmac)),
            code(bob.expire(own.hmac, 10)),
            code(bob.expire(own.hmac)),
            code(bob.expire(b"x")),
        ]
        told += [code(bob.renew(own.hmac))]
        told += [
            (code(bob.create(version=old)), len(bob.describe(everybody=True, version=old).tokens) > 0) for old in (1, 2)
        ]
        told += [code(bob.renew(given.hmac, version=old)) for old in (1, 2)]
        told += [code(bob.expire(by_right.hmac, 600_000, version=old)) for old in (1, 2)]
    return told  # fmt: skip


def test_the_answers_are_kafkas(theirs: tuple[int, int], broker: BrokerThread) -> None:
    ours = story(port(broker, "PLAINTEXT"), port(broker, "SASL_PLAINTEXT"))
    assert ours == story(*theirs)


def test_without_a_key_there_are_no_tokens(tmp_path: Path) -> None:
    options = {name: value for name, value in OPTIONS.items() if not name.startswith("delegation")}
    with BrokerThread(options={**options, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}) as broker:
        with Person(port(broker, "SASL_PLAINTEXT")).by_password("bob") as bob:
            answers = (bob.create(), bob.renew(b"x"), bob.expire(b"x"), bob.describe(everybody=True))
        assert {code(answer) for answer in answers} == {"DELEGATION_TOKEN_AUTH_DISABLED"}


def test_they_are_there_after_a_restart_and_no_longer_than_they_hold(tmp_path: Path) -> None:
    options = {**OPTIONS, "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    del options["delegation.token.secret.key"]
    with BrokerThread(data=tmp_path, options={**options, "delegation.token.master.key": "key"}) as broker:
        with Person(port(broker, "SASL_PLAINTEXT")).by_password("bob") as bob:
            long, short = bob.create(), bob.create(1)
        assert b"key" not in (tmp_path / "ottla-settings.journal").read_bytes()
    with BrokerThread(data=tmp_path, options={**options, "delegation.token.secret.key": "key"}) as broker:
        with Person(port(broker, "SASL_PLAINTEXT")) as token:
            assert token.by_token(long.token_id, long.hmac)[0] == 0
        with Person(port(broker, "SASL_PLAINTEXT")) as token:
            assert token.by_token(short.token_id, short.hmac)[0] == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_kafkas_tool_and_client(broker: BrokerThread, tmp_path: Path) -> None:
    def login(name: str, module: str, mechanism: str, words: str) -> str:
        (tmp_path / name).write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={module} required {words};\n"
        )
        return str(tmp_path / name)

    def run(config: str, tool: str, *words: str, check: bool = True) -> judge.Output:
        server = ("--bootstrap-server", broker.listeners["SASL_PLAINTEXT"], "--command-config", config)
        return judge.tool(tool, *server, *words, check=check)

    tool = "org.apache.kafka.tools.DelegationTokenCommand"
    ann = login("ann", MODULE, "PLAIN", 'username="ann" password="a"')
    said = run(ann, tool, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob").out
    words = next(line for line in said.splitlines() if "User:ann" in line).split()
    token_id, password = words[0], words[1]
    assert token_id in run(ann, tool, "--describe", "--owner-principal", "User:ann").out
    assert "Completed renew operation" in run(ann, tool, "--renew", "--hmac", password, "--renew-time-period", "-1").out
    token = login(
        "token", SCRAM_MODULE, "SCRAM-SHA-256", f'username="{token_id}" password="{password}" tokenauth="true"'
    )
    run(token, "org.apache.kafka.tools.TopicCommand", "--create", "--topic", "by-token", "--partitions", "1")
    refused = run(token, tool, "--create", "--max-life-time-period", "-1", check=False)
    assert "DelegationTokenRequest" in refused.out + refused.err or "not allowed" in refused.out + refused.err
    run(ann, tool, "--expire", "--hmac", password, "--expiry-time-period", "-1")
    assert token_id not in run(ann, tool, "--describe").out


def test_our_own_command(broker: BrokerThread) -> None:
    def run(*words: str, text: str = "", code: int = 0) -> str:
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "dora",
            "sasl.password": "d",
        }
        said = [part for name, value in login.items() for part in ("-X", f"{name}={value}")]
        here = ("--bootstrap", broker.listeners["SASL_PLAINTEXT"], *said)
        command = [sys.executable, "-m", "ottla", "tokens", *words, *here]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=180)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    token = json.loads(run("create", "--renewer", "User:bob", "--hours", "1", "--json"))
    assert token["owner"] == token["requester"] == "User:dora"
    assert token["renewers"] == "User:bob"
    assert token["expires"] == token["ends"]
    rows = json.loads(run("describe", "--owner", "dora", "--json"))
    assert [row["id"] for row in rows] == [token["id"]]
    assert "password" not in rows[0]
    assert "the token is valid until" in run("renew", "--hours", "0.5", text=token["password"] + "\n")
    assert "as `create` printed it" in run("expire", text="nonsense!\n", code=1)
    assert run("expire", text=token["password"] + "\n") == "the token is expired\n"
    assert "no such delegation token" in run("renew", text=token["password"] + "\n", code=1)
    assert run("describe") == "No tokens.\n"
