"""Runs the controller's machine while this broker is controller.

One event at a time. Watches, responses of brokers, timers and commands put events into a queue; an event that only says
that something may have changed is not queued twice. When the session with the store ends, or another broker becomes
controller, everything stops at once: the successor reads the rest from the store.

A step that fails with an unexpected error may have left an incomplete change in memory, so the machine reads everything
again before it continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cluster import znodes
from ottla.cluster.control import events
from ottla.cluster.control.channel import Channel
from ottla.cluster.control.context import ControlSettings, Deposed
from ottla.cluster.control.effects import Pause, Send, UnwatchTopics, WatchTopics
from ottla.cluster.control.machine import Machine
from ottla.cluster.control.messages import versions_of
from ottla.cluster.control.office import Office
from ottla.cluster.control.performer import Performer
from ottla.cluster.control.tally import Tally
from ottla.cluster.metadata_store import SessionEvent, StoreError
from ottla.errors import BrokerError, ErrorCode
from ottla.steps import Steps
from ottla.wire.messages.peers import LeaderAndIsrRequest, StopReplicaRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.cluster.control.memory import Memory
    from ottla.cluster.image import Broker, Image
    from ottla.cluster.metadata import Metadata
    from ottla.cluster.metadata_store import MetadataStore
    from ottla.cluster.peers import Peers

log = logging.getLogger("ottla.controller")

RETRY_S = 1.0
RETRY_S_MAX = 30.0
FIRST_BALANCE_S = 5.0  # after becoming controller, as in Kafka
NOT_CONTROLLER = BrokerError(ErrorCode.NOT_CONTROLLER)
# The event for a change at or below each path.
WATCHES: dict[str, events.Event] = {
    znodes.BROKERS: events.BrokersChanged(),
    znodes.TOPICS: events.TopicsChanged(),
    znodes.DELETED_TOPICS: events.DeletionsAsked(),
    znodes.REASSIGNMENT: events.MovesAsked(),
    znodes.PREFERRED_ELECTION: events.PreferredAsked(),
    znodes.ISR_CHANGES: events.InSyncNotified(),
    znodes.LOG_DIR_EVENTS: events.FoldersNotified(),
}


class Seek(NamedTuple):
    """Check who is controller, and try to become controller."""


class ReadWritten(NamedTuple):
    """The nodes of some topics were written; `Engine` knows which."""


class Queued(NamedTuple):
    event: events.Event | Seek | ReadWritten
    answer: asyncio.Future[Any] | None

    def is_same_event(self, other: Queued) -> bool:
        """Compares types too: all tuples without fields are equal."""
        return self == other and type(self.event) is type(other.event)


class Engine:
    """`new_id` generates the id of a topic that an old tool has created without one."""

    def __init__(
        self, store: MetadataStore, peers: Peers, metadata: Metadata, clock: Clock, new_id: Callable[[], bytes]
    ) -> None:
        self._store = store
        self._peers = peers
        self._metadata = metadata
        self._new_id = new_id
        self._office = Office(store, metadata.node_id, clock)
        self._performer = Performer(store)
        self._steps = Steps("ottla.controller")
        self.tally = Tally()
        self._machine: Machine | None = None
        self._queue: deque[Queued] = deque()
        self._more = asyncio.Event()
        self._read = asyncio.Event()  # memory is complete, or this broker is not controller
        self._channels: dict[int, Channel] = {}
        self._watches: dict[str, Callable[[], None]] = {}
        self._written: dict[str, None] = {}  # topics whose nodes were written since the last TopicsWritten event
        self._deletions: dict[str, list[asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._cancels: list[Callable[[], None]] = []
        self._current: asyncio.Task[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def in_office(self) -> bool:
        return self._machine is not None

    @property
    def epoch(self) -> int:
        """The controller epoch of this broker's term, 0 while it is not controller."""
        return 0 if self._machine is None else self._machine.term.epoch

    @property
    def queued(self) -> int:
        """Number of waiting events."""
        return len(self._queue)

    async def start(self) -> None:
        """Start to run for controller. Does not wait for the result."""
        self._cancels.append(self._store.subscribe(self._on_session_event))
        self._cancels.append(self._store.watch(znodes.CONTROLLER, lambda _: self.push(Seek())))
        self._metadata.subscribe(self._on_image_change)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.push(Seek())

    async def stop(self) -> None:
        """Stop, and resign if this broker is controller."""
        for cancel in self._cancels:
            cancel()
        held = self.in_office
        self._resign("the broker is stopping")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, *self._closing, return_exceptions=True)
        if held:
            await self._office.leave()

    # Events

    def push(self, event: events.Event | Seek | ReadWritten, answer: asyncio.Future[Any] | None = None) -> None:
        one = Queued(event, answer)
        if answer is None and not isinstance(event, events.Answered) and any(map(one.is_same_event, self._queue)):
            return
        if isinstance(event, Seek):
            self._queue.appendleft(one)
        else:
            self._queue.append(one)
        self._more.set()

    async def ask(self, event: events.Event) -> Any:
        """The machine's answer to an event; NOT_CONTROLLER when this broker is not the controller."""
        self.check_controller()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.push(event, answer)
        return await answer

    def check_controller(self) -> None:
        if self._machine is None:
            raise NOT_CONTROLLER

    async def memory(self) -> Memory:
        """The controller's memory, once it is complete. NOT_CONTROLLER when this broker is not the controller."""
        self.check_controller()
        await self._read.wait()
        return self.memory_now()

    def memory_now(self) -> Memory:
        if self._machine is None or not self._read.is_set():
            raise NOT_CONTROLLER
        return self._machine.memory

    async def _run(self) -> None:
        wait_s = RETRY_S
        while True:
            while not self._queue:
                self._more.clear()
                await self._more.wait()
            event, answer = self._queue.popleft()
            if isinstance(event, ReadWritten):
                event = events.TopicsWritten(list(self._written))
                self._written.clear()
            attempt = self._steps.attempt("a step of the controller")
            with attempt:
                await (self._seek() if isinstance(event, Seek) else self._step(event, answer))
            if answer is not None and not answer.done():
                answer.set_exception(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            if not attempt.failed:
                wait_s = RETRY_S
                continue
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_S_MAX)
            if self.in_office:
                self._read.clear()
            again: events.Event | Seek = events.Elected() if self.in_office else Seek()
            self._queue.appendleft(Queued(again, None))

    async def _seek(self) -> None:
        try:
            term = await self._office.seek()
        except StoreError as error:
            # A reconnect also triggers this, but the error may have another cause.
            asyncio.get_running_loop().call_later(RETRY_S, self.push, Seek())
            log.info("the controller cannot be determined now", extra={"reason": str(error)})
            return
        if self._machine is not None and (term is None or term != self._machine.term):
            self._resign("another broker is controller")
        if term is not None and self._machine is None:
            log.info("this broker is controller now", extra={"epoch": term.epoch})
            self._machine = Machine(term, self._settings(), self._new_id, self.tally)
            self._read.clear()
            self._watches = {path: self._watch(path, event) for path, event in WATCHES.items()}
            self._queue.appendleft(Queued(events.Elected(), None))
            self._set_timer(FIRST_BALANCE_S)

    def _watch(self, path: str, event: events.Event) -> Callable[[], None]:
        return self._store.watch(path, lambda _: self.push(event))

    def _resign(self, reason: str) -> None:
        """Stop being controller at once, in the middle of any step."""
        if self._machine is None:
            return
        log.info("this broker is no longer controller", extra={"reason": reason})
        self._machine = None
        self._read.set()
        if self._current is not None:
            self._current.cancel()
        for cancel in self._watches.values():
            cancel()
        self._watches.clear()
        if self._timer is not None:
            self._timer.cancel()
        for broker in list(self._channels):
            self._close_channel(broker)
        for queued in self._queue:
            if queued.answer is not None and not queued.answer.done():
                queued.answer.set_exception(NOT_CONTROLLER)
        self._queue = deque(queued for queued in self._queue if isinstance(queued.event, Seek))
        self._release_deletions(everything=True)

    def _on_session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._resign("the session with the store has expired")
        elif event is SessionEvent.CONNECTED:
            self.push(Seek())

    # Steps

    async def _step(self, event: events.Event, answer: asyncio.Future[Any] | None) -> None:
        machine = self._machine
        if machine is None or (answer is not None and answer.done()):
            return
        machine.configure(self._settings())
        self._current = asyncio.get_running_loop().create_task(self._perform(machine, event))
        try:
            value = await self._current
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if self._machine is machine or (this is not None and this.cancelling()):
                raise  # the engine itself is stopped, not only the step
            if answer is not None and not answer.done():
                answer.set_exception(NOT_CONTROLLER)
        except BrokerError as error:
            if answer is None:
                raise
            if not answer.done():  # the caller may be gone; a BrokerError leaves memory consistent
                answer.set_exception(error)
        except Deposed as error:
            if answer is not None and not answer.done():
                answer.set_exception(NOT_CONTROLLER)
            self._resign(str(error))
            self.push(Seek())
        else:
            if answer is not None and not answer.done():
                answer.set_result(value)
            if isinstance(event, events.Elected):
                self._read.set()
            self._close_old_channels(machine)
            self._release_deletions()
        finally:
            self._current = None

    async def _perform(self, machine: Machine, event: events.Event) -> Any:
        task = machine.handle(event)
        result: Any = None
        try:
            while True:
                effect = task.send(result)
                result = None
                if isinstance(effect, Send):
                    self._send(machine, effect)
                    await self._metadata.turns.pause()
                elif isinstance(effect, Pause):
                    await self._metadata.turns.pause()
                elif isinstance(effect, WatchTopics):
                    for topic in effect.topics:
                        self._watch_topic(topic)
                elif isinstance(effect, UnwatchTopics):
                    for topic in effect.topics:
                        self._watches.pop(znodes.topic_path(topic), lambda: None)()
                else:
                    result = await self._performer.perform(effect)
        except StopIteration as stop:
            return stop.value
        finally:
            task.close()

    def _watch_topic(self, topic: str) -> None:
        path = znodes.topic_path(topic)
        if path in self._watches:
            return

        def on_write(_: object) -> None:
            # A reconnect gives one event for every topic: they are read together.
            self._written[topic] = None
            self.push(ReadWritten())

        self._watches[path] = self._store.watch(path, on_write)

    # Brokers

    def _send(self, machine: Machine, effect: Send) -> None:
        broker = machine.memory.brokers[effect.broker]
        channel = self._channels.get(broker.id)
        if channel is not None and channel.broker != broker:
            self._close_channel(broker.id)
            channel = None
        if channel is None:
            channel = Channel(broker, self._peers, str(self._metadata.node_id), self._on_answer)
            self._channels[broker.id] = channel
        channel.send(effect.request, effect.version)

    def _on_answer(self, broker: Broker, request: Any, response: Any) -> None:
        if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self.push(Seek())
        elif isinstance(request, LeaderAndIsrRequest | StopReplicaRequest):
            self.push(events.Answered(broker.id, broker.epoch, request, response))

    def _close_old_channels(self, machine: Machine) -> None:
        for broker in [one for one in self._channels if one not in machine.memory.brokers]:
            self._close_channel(broker)

    def _close_channel(self, broker: int) -> None:
        closing = asyncio.get_running_loop().create_task(self._channels.pop(broker).close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    # Options and time

    def _settings(self) -> ControlSettings:
        config = self._metadata.config
        return ControlSettings(
            unclean=config.unclean_leader_election_enable,
            deletion=config.delete_topic_enable,
            imbalance=config.leader_imbalance_per_broker_percentage,
            listener=config.inter_broker.name,
            versions=versions_of(config.inter_broker_protocol_version),
        )

    def _set_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._balance)

    def _balance(self) -> None:
        if self._metadata.config.auto_leader_rebalance_enable:
            self.push(events.CheckBalance())
        self._set_timer(self._metadata.config.leader_imbalance_check_interval_seconds)

    def _on_image_change(self, old: Image | None, new: Image) -> None:
        """React to configs that newly allow unclean elections."""
        if self._machine is None or old is None:
            return
        if old.broker_configs is not new.broker_configs and self._metadata.config.unclean_leader_election_enable:
            self.push(events.UncleanAllowed(None))
        for name in new.topics_changed_since(old):
            before, after = old.topics.get(name), new.topics.get(name)
            if after is None or (before is not None and before.configs == after.configs):
                continue
            if self._metadata.topic_config(after).unclean_leader_election_enable:
                self.push(events.UncleanAllowed(name))

    # Waiting for deletions

    def wait_for_deletion(self, topic: str) -> asyncio.Future[None]:
        """Done when the topic is gone from the store, or this broker is no longer controller."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deletions.setdefault(topic, []).append(future)
        self._release_deletions()
        return future

    def _release_deletions(self, *, everything: bool = False) -> None:
        for topic in list(self._deletions):
            if everything or self._machine is None or topic not in self._machine.memory.topics:
                for future in self._deletions.pop(topic):
                    if not future.done():
                        future.set_result(None)
