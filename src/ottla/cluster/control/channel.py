"""The controller's requests to one broker, one at a time, each retried until it is answered or the broker is gone.

A broker that falls behind does not get every intermediate state: waiting UpdateMetadata requests are merged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from ottla.cluster.control.messages import FULL
from ottla.cluster.peers import PeerError
from ottla.steps import Steps
from ottla.wire.messages.peers import UpdateMetadataRequest, UpdateMetadataTopicState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cluster.image import Broker
    from ottla.cluster.peers import Peers

CHANNEL = "controller"
RETRY_S = 0.1
BEHIND = 4  # number of waiting requests from which on they are merged
GROUPED_SINCE = 5


class Channel:
    def __init__(
        self, broker: Broker, peers: Peers, client_id: str, answered: Callable[[Broker, Any, Any], None]
    ) -> None:
        self.broker = broker
        self._peers = peers
        self._client_id = client_id
        self._answered = answered
        self._steps = Steps("ottla.controller")
        self._waiting: deque[tuple[Any, int]] = deque()
        self._more = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def __str__(self) -> str:
        return f"broker {self.broker.id}"

    def send(self, request: Any, version: int) -> None:
        if isinstance(request, UpdateMetadataRequest) and version >= GROUPED_SINCE and len(self._waiting) >= BEHIND:
            request = self._merge_waiting(request)
        self._waiting.append((request, version))
        self._more.set()

    def _merge_waiting(self, request: UpdateMetadataRequest) -> UpdateMetadataRequest:
        """The request merged with the waiting ones before it, which are removed.

        Requests with only the broker list are kept: later ones may name a leader that is unknown without them.
        """
        kept: deque[tuple[Any, int]] = deque()
        while self._waiting:
            older, version = self._waiting.pop()
            if not isinstance(older, UpdateMetadataRequest) or not older.topic_states:
                kept.appendleft((older, version))
                continue
            merged = merge(older, request)
            if merged is None:  # stop here: merging older ones would reorder them
                self._waiting.append((older, version))
                break
            request = merged
        self._waiting.extend(kept)
        return request

    async def _run(self) -> None:
        while True:
            while self._waiting:
                request, version = self._waiting.popleft()
                await self._deliver(request, version)
            self._more.clear()
            await self._more.wait()

    async def _deliver(self, request: Any, version: int) -> None:
        while True:
            attempt = self._steps.attempt("sending a request to a broker", self)
            with attempt:
                response = await self._ask(request, version)
                self._answered(self.broker, request, response)
            if not attempt.failed:
                return
            await asyncio.sleep(RETRY_S)

    async def _ask(self, request: Any, version: int) -> Any:
        try:
            return await self._peers.ask(
                self.broker, request, version=version, client_id=self._client_id, channel=CHANNEL
            )
        except PeerError as error:
            raise OSError(str(error)) from error  # an expected error: logged without a traceback

    async def close(self) -> None:
        self._task.cancel()
        self._peers.close_channel(self.broker.id, CHANNEL)
        await asyncio.gather(self._task, return_exceptions=True)


def merge(older: UpdateMetadataRequest, newer: UpdateMetadataRequest) -> UpdateMetadataRequest | None:
    """One request for both; None when a topic was deleted and recreated in between. Neither is changed."""
    if newer.type == FULL:
        return newer
    topics = {topic.topic_name: topic for topic in newer.topic_states}
    merged = dict(topics)
    for topic in older.topic_states:
        known = topics.get(topic.topic_name)
        if known is None:
            merged[topic.topic_name] = topic
            continue
        if known.topic_id != topic.topic_id:
            return None
        states = {state.partition_index: state for state in (*topic.partition_states, *known.partition_states)}
        merged[topic.topic_name] = UpdateMetadataTopicState(
            topic_name=topic.topic_name, topic_id=topic.topic_id, partition_states=list(states.values())
        )
    return UpdateMetadataRequest(
        controller_id=newer.controller_id,
        type=older.type,
        controller_epoch=newer.controller_epoch,
        broker_epoch=newer.broker_epoch,
        topic_states=list(merged.values()),
        live_brokers=newer.live_brokers,
    )
