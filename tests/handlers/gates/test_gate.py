"""Every API that a broker serves has a gate, or is open to all on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from handlers.conftest import port_of
from handlers.wired import Wired

from ottla import handlers
from ottla.embed import BrokerThread
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers import gates
from ottla.handlers.call import REGISTRY
from ottla.handlers.gates.gate import GATES, UNGUARDED, EarlyReply, Guard, at_once, check, proceed
from ottla.security.authorizer import Authorizer
from ottla.wire import apis, codec
from ottla.wire.messages.folders import DescribeLogDirsRequest
from ottla.wire.messages.offsets import ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest, ListTransactionsRequest
from ottla.wire.schema import fields

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_every_served_api_has_a_gate_or_is_open_on_purpose() -> None:
    handlers.load()
    gates.load()
    open_to_all = sorted(f"{key} {apis.BY_KEY[key].name}" for key in REGISTRY.keys() - GATES.keys() - UNGUARDED)
    assert not open_to_all, f"write a gate in handlers/gates/, or say in UNGUARDED that it needs none: {open_to_all}"
    assert not UNGUARDED & GATES.keys(), "it has a gate, so it is not open to all"
    assert UNGUARDED | GATES.keys() <= REGISTRY.keys(), "nothing is served there"


def empty(cls: type, version: int, lists: str) -> Any:
    """An empty message of this class: with empty lists, or with lists of empty elements."""
    values: dict[str, Any] = {}
    for field in fields(cls):
        if field.array and field.may_be_null(version) and lists == "null":
            values[field.name] = None
        elif field.array:
            deeper = lists == "elements" and field.struct is not None and field.present(version)
            values[field.name] = [empty(field.struct, version, "none")] if deeper and field.struct else []
        elif field.struct is not None:
            values[field.name] = None if field.may_be_null(version) else empty(field.struct, version, lists)
        else:
            values[field.name] = {"string": "", "blob": b""}.get(field.kind, field.default or 0)
            if field.kind == "fixed" and field.format == "16s":
                values[field.name] = bytes(16)
    return cls(**values)


@pytest.mark.parametrize("lists", ["none", "null", "elements"])
def test_a_request_that_is_refused_never_reaches_its_handler(lists: str) -> None:
    """Not even an empty one, whose response has no place for an error code."""
    handlers.load()
    gates.load()

    def refuse(guard: Any, request: Any) -> None:
        raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def handler(*_: Any) -> Any:
        raise AssertionError("the handler was asked")

    for key in sorted(GATES):
        low, high = REGISTRY[key].versions
        for version in range(low, high + 1):
            api = apis.BY_KEY[key]
            request = empty(api.request, version, lists)
            guard = Guard(Authorizer(), cast("Any", None), cast("Any", Asking(key, version)))
            outcome = at_once(check(refuse, guard, request))
            assert isinstance(outcome, EarlyReply), f"{api.name} {version}"
            answer = proceed(handler, cast("Any", None), cast("Any", None), request, outcome)
            assert isinstance(answer, api.response), f"{api.name} {version}"
            assert codec.encode(answer, version) is not None


class Asking(NamedTuple):
    """The parts of a call that a gate uses."""

    key: int
    version: int
    principal: str = "User:nobody"
    host: str = "127.0.0.1"


@pytest.fixture(scope="module")
def closed() -> Iterator[BrokerThread]:
    """A broker that denies everything."""
    options = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with BrokerThread(options=options) as broker:
        yield broker


def test_asking_for_nothing_tells_nothing(closed: BrokerThread) -> None:
    with Wired(port_of(closed)) as wired:
        for version in (1, 2):
            assert wired.ask(DescribeLogDirsRequest(topics=None), version).results == []
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="theirs",
            v3_and_below_producer_id=0,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[],
        )
        assert wired.ask(added, 3).results_by_topic_v3_and_below == []
        assert wired.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0).transaction_states == []
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="x", partitions=[])])
        assert wired.ask(asked, 7).topics[0].partitions == []
