"""The first users of a broker that lets in nobody else: from the command line to a login."""

from __future__ import annotations

import base64
import subprocess
import sys
from hashlib import pbkdf2_hmac
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from waiting import wait_until

from ottla.config.option import ConfigError
from ottla.security.credential import credential, decode, encode
from ottla.security.first_users import parse_first_user
from ottla.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"/secret": "pencil\n", "-": "from stdin\r\n"}


def read(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path]


def parse(text: str) -> tuple[str, str, str]:
    return parse_first_user(text, read, lambda size: b"s" * size)


def kept(mechanism: str, password: str, salt: bytes = b"s" * 26, iterations: int = 4096) -> str:
    digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    salted = pbkdf2_hmac(digest, password.encode(), salt, iterations)
    return encode(credential(mechanism, salt, salted, iterations))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SCRAM-SHA-256=[name=ann,password=pencil]", ("ann", "SCRAM-SHA-256", kept("SCRAM-SHA-256", "pencil"))),
        ("scram-sha-512=[name=ann,password-file=/secret]", ("ann", "SCRAM-SHA-512", kept("SCRAM-SHA-512", "pencil"))),
        ("SCRAM-SHA-512=[name=b,password-file=-]", ("b", "SCRAM-SHA-512", kept("SCRAM-SHA-512", "from stdin"))),
        (
            'SCRAM-SHA-256=[name="a, b", password="x, ]=y", iterations=8192, salt="c2FsdA=="]',
            ("a, b", "SCRAM-SHA-256", kept("SCRAM-SHA-256", "x, ]=y", b"salt", 8192)),
        ),
    ],
)
def test_words_of_kafka_and_ours(text: str, expected: tuple[str, str, str]) -> None:
    assert parse(text) == expected


def test_a_salted_password_is_taken_as_it_is() -> None:
    salted = base64.b64encode(pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)).decode()
    made = parse(f"SCRAM-SHA-256=[name=ann,salt=c2FsdA==,saltedpassword={salted}]")
    assert decode(made[2]) == decode(kept("SCRAM-SHA-256", "pencil", b"salt"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ann:hush", "expected MECHANISM=[name=...,password-file=...], where MECHANISM is"),
        ("SCRAM-SHA-1=[name=ann,password=hush]", "where MECHANISM is SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=hush]", "name is missing"),
        ("SCRAM-SHA-256=[name=ann]", "for ann: expected one of password, password-file, saltedpassword"),
        ("SCRAM-SHA-256=[name=ann,password=hush,password-file=/secret]", "for ann: expected one of"),
        ("SCRAM-SHA-256=[name=ann,password=hush,password=hush2]", "password is given twice"),
        ('SCRAM-SHA-256=[name=ann,password="hush]', "expected name=value"),
        ("SCRAM-SHA-256=[name=ann,passwort=hush]", "passwort is not one of"),
        ("SCRAM-SHA-256=[name=ann,password=]", "the password is empty"),
        ("SCRAM-SHA-256=[name=ann,password=hush,iterations=1]", "iterations: expected 4096 to 16384"),
        (f"SCRAM-SHA-256=[name=ann,password=hush,iterations={'9' * 9000}]", "iterations: expected"),
        ("SCRAM-SHA-256=[name=ann,password=hush,salt=%]", "salt: expected base 64"),
        ("SCRAM-SHA-256=[name=ann,saltedpassword=aHVzaA==]", "saltedpassword needs its salt"),
        ("SCRAM-SHA-256=[name=ann,password-file=/nowhere]", "for ann: /nowhere: No such file or directory"),
    ],
)
def test_what_makes_no_sense_is_said_without_the_password(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_broker_that_only_speaks_scram_gets_its_first_user(tmp_path: Path) -> None:
    """Also after a restart with the same line: then nothing is changed, and a password that was changed stays."""
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    (port,) = free_ports(1)
    serve = [sys.executable, "-m", "ottla", "serve", "--data", str(tmp_path / "data"), "--log-level", "debug"]
    serve += ["--set", f"listeners=SASL_PLAINTEXT://127.0.0.1:{port}"]
    serve += ["--set", "sasl.enabled.mechanisms=SCRAM-SHA-512"]
    serve += ["--add-scram", f"SCRAM-SHA-512=[name=ann,password-file={secret}]"]
    serve += ["--add-scram", "SCRAM-SHA-512=[name=bob,password-file=-]"]
    for passwords in (b"first\n", b"second\n"):
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=log, stderr=log)
            try:
                assert process.stdin is not None
                process.stdin.write(passwords)
                process.stdin.close()
                wait_until(lambda: enters(port, "ann", "open sesame"), (tmp_path / "log").read_text)
                assert enters(port, "bob", "first")
            finally:
                process.terminate()
                assert process.wait(60) == 0
    said = (tmp_path / "log").read_text()
    assert said.count("ann can log in by SCRAM-SHA-512") == 1
    for secret_word in ("open sesame", "first", "second"):
        assert secret_word not in said


def enters(port: int, user: str, password: str) -> bool:
    client = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )
    try:
        return bool(client.list_topics(timeout=5).brokers)
    except KafkaException:
        return False
