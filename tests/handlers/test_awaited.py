"""A broker that has just started: topics in the store that the controller has not announced yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from handlers.test_replication import ID
from handlers.test_replication import metadata as tell
from replica.test_partition import play

from ottla.errors import ErrorCode
from ottla.handlers.call import Call
from ottla.handlers.metadata import metadata
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from pathlib import Path

    from replica.making import Host

CALL = Call(3, 12, "c", "127.0.0.1", "PLAINTEXT", ("127.0.0.1", 9092))
LATER, NO_TOPIC, NO_ID = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


def response(host: Host, request: MetadataRequest) -> MetadataResponse:
    answer = metadata(host.parts, CALL, request)
    while not isinstance(answer, MetadataResponse):
        try:
            next(answer)
        except StopIteration as end:
            answer = end.value
    return answer


def asked(host: Host, request: MetadataRequest) -> list[tuple[str | None, int]]:
    """The topics of the response and their errors."""
    return [(topic.name, topic.error_code) for topic in response(host, request).topics]


def named(host: Host, name: str | None = "t", topic_id: bytes = ZERO_UUID) -> int:
    wanted = [MetadataRequestTopic(name=name, topic_id=topic_id)]
    ((_, code),) = asked(host, MetadataRequest(topics=wanted, allow_auto_topic_creation=name == "t"))
    return code


def test_it_is_not_said_to_be_gone_and_not_made_again(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        host.membership.awaited = {"t": ID}
        assert (named(host), named(host, None, ID), named(host, "other")) == (LATER, LATER, NO_TOPIC)
        assert named(host, None, b"o" * 16) == NO_ID
        assert asked(host, MetadataRequest(topics=None)) == [("t", LATER)]
        await tell(host, version=8)
        assert (named(host), named(host, None, ID)) == (ErrorCode.NONE, ErrorCode.NONE)
        assert asked(host, MetadataRequest(topics=None)) == [("t", ErrorCode.NONE)]

    play(tmp_path, story)


@pytest.mark.parametrize("how", ["deleted", "left out"])
def test_it_is_gone_when_the_controller_says_so(tmp_path: Path, how: str) -> None:
    async def story(host: Host) -> None:
        host.membership.awaited = {"t": ID}
        if how == "deleted":
            await tell(host, version=8, leader=-2)
        else:
            await tell(host, version=8, kind=2, name="other")
        assert not host.membership.awaited
        wanted = [MetadataRequestTopic(name="t")]
        assert asked(host, MetadataRequest(topics=wanted, allow_auto_topic_creation=False)) == [("t", NO_TOPIC)]

    play(tmp_path, story)


def test_there_are_brokers_before_the_controller_tells_of_them(tmp_path: Path) -> None:
    async def story(host: Host) -> None:
        told = host.metadata.image.brokers
        host.membership.brokers = dict(told)
        host.metadata.publish(host.metadata.image._replace(brokers={}))
        assert [(one.node_id, one.port) for one in response(host, MetadataRequest(topics=[])).brokers] == [
            (number, 9092 + number) for number in told
        ]
        host.metadata.publish(host.metadata.image._replace(brokers={1: told[1]}))
        assert [one.node_id for one in response(host, MetadataRequest(topics=[])).brokers] == [1]

    play(tmp_path, story)
