"""The SASL exchange of a connection: order, failure, renewal. And PLAIN, the mechanism that it is shown with."""

from functools import partial

import pytest

from ottla.errors import ErrorCode
from ottla.security.login import API_VERSIONS, AUTHENTICATE, HANDSHAKE, Login, LoginError
from ottla.security.plain import Plain

PASSWORDS = {"alice": "wonder", "bob": "builder"}
FETCH = 1


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made(lifetime_ms: int = 0, time: Time | None = None) -> tuple[Login, list[Login]]:
    entered: list[Login] = []
    return Login({"PLAIN": partial(Plain, PASSWORDS)}, time or Time(), lifetime_ms, 0.1, entered.append), entered


def word(name: str, password: str, identity: str = "") -> bytes:
    return f"{identity}\0{name}\0{password}".encode()


def test_one_step_after_the_other() -> None:
    login, entered = made()
    assert [login.allows(key) for key in (API_VERSIONS, HANDSHAKE, AUTHENTICATE, FETCH)] == [True, True, False, False]
    assert login.choose("PLAIN", 1) == ErrorCode.NONE
    assert [login.allows(key) for key in (API_VERSIONS, HANDSHAKE, AUTHENTICATE, FETCH)] == [False, True, True, False]
    assert login.respond(word("alice", "wonder")) == (b"", 0)
    assert entered == [login]
    assert str(login.principal) == "User:alice"
    assert login.allows(FETCH)


def test_a_mechanism_that_is_not_there_ends_it() -> None:
    login, _ = made()
    assert login.choose("GSSAPI", 1) == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert not any(login.allows(key) for key in range(80))
    assert login.choose("PLAIN", 1) == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (word("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (word("nobody", "wonder"), "Authentication failed: Invalid username or password"),
        (word("", "wonder"), "Authentication failed: username not specified"),
        (word("alice", ""), "Authentication failed: password not specified"),
        (
            word("alice", "wonder", "bob"),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (
            b"\xff\0a\0b",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN",
        ),
    ],
)
def test_a_failure_ends_it_and_tells_no_more_than_it_must(token: bytes, told: str) -> None:
    login, entered = made()
    login.choose("PLAIN", 1)
    with pytest.raises(LoginError) as failed:
        login.respond(token)
    assert failed.value.told == told
    assert not entered
    assert not any(login.allows(key) for key in range(80))


def test_a_login_that_ends_is_renewed_by_the_same_principal_only() -> None:
    time = Time()
    login, entered = made(10_000, time)
    login.choose("PLAIN", 1)
    assert login.respond(word("alice", "wonder")) == (b"", 10_000)
    assert login.choose("PLAIN", 1) == ErrorCode.ILLEGAL_SASL_STATE, "too soon"
    time.now += 5
    assert login.choose("PLAIN", 1) == ErrorCode.NONE
    assert not login.allows(FETCH)
    login.respond(word("alice", "wonder"))
    time.now += 9
    assert login.allows(FETCH)
    time.now += 2
    assert not login.allows(FETCH)
    assert login.allows(HANDSHAKE)
    assert login.choose("PLAIN", 1) == ErrorCode.NONE
    with pytest.raises(LoginError) as failed:
        login.respond(word("bob", "builder"))
    assert "Cannot change principals" in failed.value.told
    assert len(entered) == 2
