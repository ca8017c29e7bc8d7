"""SCRAM, the broker's side: the example of RFC 7677, and every way to cheat."""

import base64
import hashlib

import pytest

from ottla.client.security import Security, scram_steps
from ottla.security.credential import Credential, credential, decode, encode
from ottla.security.decoys import Decoys
from ottla.security.login import LoginError
from ottla.security.scram import Scram

MECHANISM = "SCRAM-SHA-256"
NONCE = "server-nonce"
SECRET = b"secret of the broker"


def kept(password: str, salt: bytes = b"salty", mechanism: str = MECHANISM, iterations: int = 4096) -> str:
    kind = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), salt, iterations)
    return encode(credential(mechanism, salt, salted, iterations))


USERS = {
    "alice": {MECHANISM: kept("pencil"), "SCRAM-SHA-512": kept("pencil", mechanism="SCRAM-SHA-512")},
    "a,b=c": {MECHANISM: kept("pencil")},
    "torn": {MECHANISM: "salt=!!"},
}


DECOYS = Decoys(SECRET, lambda: USERS)


def exchange(nonce: str = NONCE, mechanism: str = MECHANISM) -> Scram:
    return Scram(mechanism, lambda name: USERS.get(name, {}), nonce, DECOYS)


def log_in(name: str, password: str, mechanism: str = MECHANISM) -> Scram:
    """With our client, which checks the broker, too."""
    server, client = (
        exchange(mechanism=mechanism),
        scram_steps(Security(protocol="SASL_SSL", mechanism=mechanism, user=name, password=password), "the broker"),
    )
    token = next(client)
    while True:
        try:
            token = client.send(server.respond(token))
        except StopIteration:
            return server


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server = Scram(MECHANISM, lambda name: {MECHANISM: kept("pencil", salt)}, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", DECOYS)
    said = server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert said == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = server.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_our_client_gets_in(mechanism: str) -> None:
    assert log_in("alice", "pencil", mechanism).user == "alice"


def test_signs_in_a_name() -> None:
    assert log_in("a,b=c", "pencil").user == "a,b=c"


@pytest.mark.parametrize(("name", "password"), [("alice", "pen"), ("nobody", "pencil"), ("torn", "pencil")])
def test_a_wrong_password_and_a_wrong_name_fail_at_the_same_step_with_the_same_words(name: str, password: str) -> None:
    with pytest.raises(LoginError, match="wrong name or password"):
        log_in(name, password)


def test_nobody_gets_the_same_challenge_every_time() -> None:
    first, second = (exchange().respond(b"n,,n=nobody,r=abc") for _ in range(2))
    assert first == second
    assert exchange().respond(b"n,,n=somebody,r=abc") != first


def test_a_recorded_proof_is_good_for_nothing() -> None:
    server = exchange()
    client = scram_steps(Security(mechanism=MECHANISM, user="alice", password="pencil"), "the broker")
    first = next(client)
    final = client.send(server.respond(first))
    other = exchange("another-nonce")
    other.respond(first)
    with pytest.raises(LoginError, match="another exchange"):
        other.respond(final)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"n,,n=alice",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=alice,r=a b",
        b"n,,n=alice,r=" + b"x" * 2000,
    ],
)
def test_what_is_no_first_message(message: bytes) -> None:
    with pytest.raises(LoginError):
        exchange().respond(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws,r=abcserver-nonce",
        b"c=biws,r=abcserver-nonce,p=",
        b"c=eSws,r=abcserver-nonce,p=AAAA",  # another header than the first message had
        b"c=biws,r=abcserver-nonce,p=AAAA",
        b"c=biws,r=abc,p=AAAA",
        b"c=b,r=abcserver-nonce,p=A",
    ],
)
def test_what_is_no_final_message(message: bytes) -> None:
    server = exchange()
    server.respond(b"n,,n=alice,r=abc")
    with pytest.raises(LoginError):
        server.respond(message)


def test_a_credential_is_written_as_kafka_writes_it() -> None:
    made = Credential(b"s", b"stored", b"server", 8192)
    assert encode(made) == "salt=cw==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192"
    assert decode(encode(made)) == made
    assert "stored" not in repr(made)


@pytest.mark.parametrize("text", ["", "salt=cw==", "salt=!,stored_key=!,server_key=!,iterations=1", "a,b,c"])
def test_what_is_no_credential(text: str) -> None:
    with pytest.raises(ValueError, match="not a SCRAM credential"):
        decode(text)


def test_a_token_that_does_not_exist_looks_like_one_that_does() -> None:
    server = exchange()
    assert b",i=4096" in server.respond(b"n,,n=alice,r=abc,tokenauth=true")
    with pytest.raises(LoginError, match="wrong name or password"):
        server.respond(b"c=biws,r=abc" + NONCE.encode() + b",p=" + base64.b64encode(bytes(32)))


def challenge(name: str, users: dict[str, dict[str, str]]) -> tuple[int, int, bool]:
    """Iterations, the size of the salt, and whether it is text."""
    server = Scram(MECHANISM, lambda name: users.get(name, {}), NONCE, Decoys(SECRET, lambda: users))
    said = server.respond(f"n,,n={name},r=abc".encode()).decode()
    pairs = dict(part.split("=", 1) for part in said.split(","))
    salt = base64.b64decode(pairs["s"])
    return int(pairs["i"]), len(salt), salt.isalnum() and salt.islower()


@pytest.mark.parametrize(
    ("salt", "iterations"), [(bytes(range(200, 232)), 8192), (b"1x2y3z4a5b6c7d8e9f0g1h2i3j", 4096), (b"s4lt", 16384)]
)
def test_nobody_cannot_be_told_from_users_by_the_form_of_the_challenge(salt: bytes, iterations: int) -> None:
    users = {f"user{number}": {MECHANISM: kept("pw", salt, iterations=iterations)} for number in range(3)}
    assert challenge("nobody", users) == challenge("user0", users)


def test_forms_are_as_frequent_among_those_who_do_not_exist() -> None:
    users = {f"new{number}": {MECHANISM: kept("pw", bytes(32), iterations=8192)} for number in range(3)}
    users["old"] = {MECHANISM: kept("pw", b"s4lt", iterations=4096)}
    forms = [challenge(f"nobody{number}", users)[0] for number in range(400)]
    assert 240 < forms.count(8192) < 360
    assert forms.count(8192) + forms.count(4096) == 400
