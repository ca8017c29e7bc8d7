"""An address that does not answer is named, soon: the one that was given, or the one that a broker sends clients to."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.failure import Failed
from ottla.client.security import PLAIN
from ottla.embed import BrokerThread
from ottla.tools import reach as module
from ottla.tools.reach import reach
from ottla.tools.start import tools


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody listens there, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture(scope="module")
def lost() -> Iterator[BrokerThread]:
    """A broker that sends its clients to a port where nobody listens."""
    with BrokerThread(options={"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}) as broker:
        yield broker


def test_a_wrong_advertised_address_is_named(lost: BrokerThread) -> None:
    with pytest.raises(Failed, match=rf"{lost.bootstrap} answers, but sends clients to 127\.0\.0\.1:1 \(.*refused"):
        reach(lost.bootstrap, PLAIN)


def test_an_advertised_address_that_is_silent_is_named(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOLD_S_MAX", 0.1)
    with (
        BrokerThread(options={"advertised.listeners": f"PLAINTEXT://{silent}"}) as broker,
        pytest.raises(Failed, match=rf"sends clients to {silent} \(no answer\).*advertised\.listeners"),
    ):
        reach(broker.bootstrap, PLAIN)


def test_every_command_says_so(lost: BrokerThread, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["topics", "list"], ["brokers", "list"], ["consume", "t"], ["produce", "t", "v"]):
        assert tools([*command, "--bootstrap", lost.bootstrap]) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert f"{lost.bootstrap} answers, but sends clients to 127.0.0.1:1" in said


def test_a_silent_address_is_given_up(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S_MAX", 0.1)
    with pytest.raises(Failed, match=f"nothing answers at {silent}"):
        reach(silent, PLAIN)


def test_what_is_told_may_have_another_name() -> None:
    with BrokerThread() as broker:
        port = broker.bootstrap.rpartition(":")[2]
        assert reach(f"localhost:{port}", PLAIN) == [broker.bootstrap]
        assert reach(f"127.0.0.1:1,{broker.bootstrap}", PLAIN) == [broker.bootstrap]
        assert reach(broker.bootstrap, None) == [], "it is not known how to ask"


def test_one_told_address_that_answers_is_enough(ottla_broker: Any) -> None:
    host, _, port = ottla_broker.bootstrap.partition(":")
    module.check_told("there", [("127.0.0.1", 1), (host, int(port))], PLAIN)
