"""A model of a cluster, of Spark and of faults around the exactly-once sink's own code; a seed decides everything.

The cluster knows transactional ids as a coordinator does: epochs, fencing, time-outs, both of Kafka's protocols. Spark
runs drivers that plan epochs in a checkpoint and spread their rows over tasks in a new way each time; tasks have
several attempts, failed, speculative, late. Actors are threads of which one runs at a time: each call to the cluster
waits for its turn, so an actor can stop before any call for a long while (a zombie), for good (a crash), or have the
call done and never hear of it (a lost answer). Drivers are replaced while they may still be alive.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.client.failure import Failed, Refused, Unreachable
from ottla.client.transaction import ProducerIdentity
from ottla.errors import ErrorCode
from ottla.spark.sink import exactly_once
from ottla.spark.sink.decisions import Prepared, SinkDecision, driver
from ottla.spark.sink.exactly_once import IdState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TIMEOUT_MS = 60_000
FOR_EVER_MS = 2**31 - 1
STEPS_MAX = 4000
DRIVERS_MAX = 4  # at once: more of them only keep each other from getting on
Row = tuple[int, int]  # epoch and number


logging.getLogger("ottla.spark.sink.exactly_once").setLevel(logging.ERROR)  # a sweep that fails is no news here


class CrashError(BaseException):
    """The end of an actor, wherever it is; not an Exception, so that nothing handles it."""


@dataclass
class Transaction:
    producer_id: int
    epoch: int = 0
    state: str = "Empty"
    started_ms: int = 0
    rows: list[Row] = field(default_factory=list)
    decision: SinkDecision | None = None


class Cluster:
    """Coordinator, topic and log of decisions. Each method is one step that nothing interrupts."""

    def __init__(self, chance: random.Random, *, newer: bool, two_phase: bool) -> None:
        self.chance = chance
        self.newer = newer
        self.two_phase = two_phase
        self.now_ms = 0
        self.ids: dict[str, Transaction] = {}
        self.visible: Counter[Row] = Counter()
        self.log: list[SinkDecision] = []
        self.unmarked: list[SinkDecision] = []  # committed, but the marker that says so is not in the log yet

    def identify(self, name: str) -> ProducerIdentity:
        if name == driver(QUERY):
            self.mark()  # an id is handed out when its last transaction is over, markers and all
        known = self.ids.get(name)
        if known is None:
            known = self.ids[name] = Transaction(producer_id=len(self.ids))
        else:
            if known.state == "Ongoing":
                known.epoch += 1  # the abort fences, then the new producer gets an epoch of its own
                self._over(known, "CompleteAbort")
            known.epoch += 1
            known.state = "Empty"
        return ProducerIdentity(name, known.producer_id, known.epoch)

    def write(self, identity: ProducerIdentity, rows: Sequence[Row] = (), decision: SinkDecision | None = None) -> None:
        known = self._current(identity)
        if known.state != "Ongoing":
            known.state, known.started_ms = "Ongoing", self.now_ms
        known.rows += rows
        known.decision = decision

    def end(self, identity: ProducerIdentity) -> None:
        name = str(identity.transactional_id)
        known = self.ids[name]
        before = identity.epoch + 1 if self.newer else identity.epoch
        if (known.producer_id, known.epoch, known.state) == (identity.producer_id, before, "CompleteCommit"):
            return  # it was done before
        known = self._current(identity)
        if known.state != "Ongoing":
            raise Refused(name, ErrorCode.INVALID_TXN_STATE)
        self.visible.update(known.rows)
        if known.decision is not None:
            self.unmarked.append(known.decision)
        self._over(known, "CompleteCommit")
        known.epoch += self.newer

    def states(self, names: Sequence[str]) -> dict[str, IdState]:
        timeout_ms = FOR_EVER_MS if self.two_phase else TIMEOUT_MS
        return {
            name: IdState(known.state, known.producer_id, known.epoch, known.started_ms, timeout_ms)
            for name in names
            if (known := self.ids.get(name)) is not None
        }

    def ongoing(self, prefix: str) -> list[str]:
        return [name for name, one in self.ids.items() if one.state == "Ongoing" and name.startswith(prefix)]

    def last(self, surely: bool) -> SinkDecision | None:
        known = self.log if surely or self.chance.random() < 0.9 else self.log[:-1]
        return known[-1] if known else None

    def mark(self) -> None:
        self.log += self.unmarked
        self.unmarked = []

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for name, one in self.ids.items():
            for_ever = self.two_phase and name != driver(QUERY)
            if one.state == "Ongoing" and not for_ever and self.now_ms - one.started_ms > TIMEOUT_MS:
                one.epoch += 1
                self._over(one, "CompleteAbort")

    def _current(self, identity: ProducerIdentity) -> Transaction:
        known = self.ids[str(identity.transactional_id)]
        if (known.producer_id, known.epoch) != (identity.producer_id, identity.epoch):
            raise Refused(str(identity.transactional_id), ErrorCode.PRODUCER_FENCED)
        return known

    def _over(self, known: Transaction, state: str) -> None:
        known.state = state
        known.rows = []
        known.decision = None


QUERY = "q"


class Actor(threading.Thread):
    def __init__(self, world: World, name: str, work: Callable[[Port], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.world = world
        self.turn = threading.Semaphore(0)
        self.yielded = threading.Semaphore(0)
        self.crashed = False
        self.over = False
        self.delay = 0  # turns that it lets pass: a zombie has many
        self.work = work
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.wait_for_turn()
            self.work(Port(self))
        except CrashError:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.over = True
            self.yielded.release()

    def wait_for_turn(self) -> None:
        self.turn.acquire()
        if self.crashed:
            raise CrashError

    def pause(self) -> None:
        """Let others run, perhaps for ever."""
        self.yielded.release()
        self.wait_for_turn()


class Port:
    """The sink's port: each call is one turn of its actor."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._world = actor.world
        self._cluster = actor.world.cluster

    def _step(self, call: Callable[[], object]) -> object:
        self._actor.pause()
        answer = call()
        if self._world.chance.random() < self._world.lost_answers:
            raise Unreachable("the answer was lost")
        return answer

    def identify(self, name: str) -> ProducerIdentity:
        return self._step(lambda: self._cluster.identify(name))  # type: ignore[return-value]

    def write(self, identity: ProducerIdentity, rows: Sequence[Row]) -> None:
        self._step(lambda: self._cluster.write(identity, rows))

    def end(self, identity: ProducerIdentity) -> None:
        self._step(lambda: self._cluster.end(identity))

    def states(self, names: Sequence[str]) -> dict[str, IdState]:
        return self._step(lambda: self._cluster.states(names))  # type: ignore[return-value]

    def ongoing(self, prefix: str) -> list[str]:
        found = self._step(lambda: self._cluster.ongoing(prefix))
        if self._world.chance.random() < self._world.late_sweeps:
            self._actor.delay = self._world.chance.randint(50, 300)  # what it knows grows old, and then it acts
        return found  # type: ignore[return-value]

    def last(self, query: str, *, surely: bool = True) -> SinkDecision | None:
        return self._step(lambda: self._cluster.last(surely))  # type: ignore[return-value]

    def open(self, fence: ProducerIdentity, query: str) -> None:
        self._step(lambda: self._cluster.write(fence))

    def record(self, fence: ProducerIdentity, query: str, decision: SinkDecision) -> None:
        self._step(lambda: self._cluster.write(fence, decision=decision))
        self._step(lambda: self._cluster.end(fence))


class World:
    """One seed: drivers come and go until every epoch is in the checkpoint's log of commits."""

    def __init__(self, seed: int, *, epochs: int = 4, timeouts: bool = False, late_sweeps: float | None = None) -> None:
        self.chance = random.Random(seed)
        self.epochs = epochs
        self.timeouts = timeouts
        self.cluster = Cluster(self.chance, newer=self.chance.random() < 0.5, two_phase=not timeouts)
        self.crashes = self.chance.choice((0.0, 0.01, 0.03))
        self.lost_answers = self.chance.choice((0.0, 0.01, 0.03))
        self.freezes = self.chance.choice((0.0, 0.02, 0.1))
        self.late_sweeps = self.freezes if late_sweeps is None else late_sweeps
        self.offsets: dict[int, list[Row]] = {}  # the checkpoint: what each epoch has, and which are done
        self.commits: set[int] = set()
        self.actors: list[Actor] = []
        self.runs = 0
        self.lost: list[str] = []  # what a driver said when it found rows lost to a time-out
        self.driver: Actor | None = None

    @property
    def rows(self) -> Counter[Row]:
        return Counter(row for rows in self.offsets.values() for row in rows)

    def run(self) -> None:
        try:
            for _ in range(STEPS_MAX):
                if len(self.commits) == self.epochs or self.lost:
                    break
                self._one_step()
            else:
                raise AssertionError("no end: the query does not go on")
            # Whoever is still alive may do as it likes: it must not matter.
            for _ in range(STEPS_MAX):
                if not self._alive():
                    break
                self._one_step()
        finally:
            for actor in self.actors:
                actor.crashed = True
                actor.turn.release()
            for actor in self.actors:
                actor.join()
        for actor in self.actors:
            if actor.error is not None and not isinstance(actor.error, Failed):
                raise actor.error

    def _alive(self) -> list[Actor]:
        return [actor for actor in self.actors if not actor.over and not actor.crashed]

    def _drivers(self) -> int:
        return sum("/" not in actor.name for actor in self._alive())

    def _one_step(self) -> None:
        chance = self.chance
        gone = self.driver is None or self.driver.over or self.driver.crashed
        silent = self.driver is not None and self.driver.delay > 20
        replaced = gone or (self._drivers() < DRIVERS_MAX and chance.random() < (0.1 if silent else self.freezes / 20))
        if replaced and len(self.commits) < self.epochs and not self.lost:
            self._start_driver()  # and the old one may live on
        alive = self._alive()
        for actor in alive:
            actor.delay = max(0, actor.delay - 1)
        ready = [actor for actor in alive if not actor.delay] or alive
        if not ready:
            return
        actor = chance.choice(ready)
        if chance.random() < self.crashes:
            actor.crashed = True
            return
        if chance.random() < self.freezes:
            actor.delay = chance.randint(1, 150)
            return
        if chance.random() < 0.02:
            self.cluster.pass_time(chance.choice((1_000, 100_000)) if self.timeouts else 1_000)
        if chance.random() < 0.2:
            self.cluster.mark()
        actor.turn.release()
        actor.yielded.acquire()

    def start(self, name: str, work: Callable[[Port], None]) -> Actor:
        actor = Actor(self, name, work)
        self.actors.append(actor)
        actor.start()
        return actor

    # ------------------------------------------------------------------ Spark

    def _start_driver(self) -> None:
        self.runs += 1
        run = f"run{self.runs}"
        self.driver = self.start(run, lambda port: self._drive(run, port))

    def _drive(self, run: str, port: Port) -> None:
        epoch = max(self.offsets, default=0)
        if epoch in self.commits:
            epoch += 1
        replay = epoch in self.offsets
        while epoch < self.epochs:
            if not replay:
                if epoch in self.offsets:
                    return  # another driver has planned it: this one gives up, as Spark's does
                self.offsets[epoch] = [(epoch, number) for number in range(self.chance.randint(0, 5))]
            replay = False
            if not self._run_epoch(run, epoch, port):
                return
            self.commits.add(epoch)
            epoch += 1

    def _run_epoch(self, run: str, epoch: int, port: Port) -> bool:
        messages = self._run_tasks(run, epoch, port._actor)
        try:
            if any(message is None for message in messages):
                raise Unreachable("a task failed too often")
            done = [message for message in messages if message is not None]
            exactly_once.commit(port, epoch, done)
        except Failed as error:
            if "partly in the topic" in str(error):
                self.lost.append(str(error))
            with contextlib.suppress(Failed):
                exactly_once.abort(port, epoch, [message for message in messages if message is not None])
            return False
        return True

    def _run_tasks(self, run: str, epoch: int, driver: Actor) -> list[Prepared | None]:
        """Each task has attempts until one has reported. Others may still be running then, and continue."""
        tasks = self.chance.randint(1, 3)
        share: list[list[Row]] = [[] for _ in range(tasks)]
        for row in self.offsets[epoch]:
            self.chance.choice(share).append(row)
        messages: list[Prepared | None] = [None] * tasks
        tried = [0] * tasks
        running: list[list[Actor]] = [[] for _ in range(tasks)]
        while True:
            for task in range(tasks):
                if messages[task] is not None:
                    continue
                ended = all(actor.over or actor.crashed for actor in running[task])
                if tried[task] < 4 and (ended or self.chance.random() < 0.05):  # failed, or a speculative twin
                    tried[task] += 1
                    work = self._attempt(epoch, task, share[task], messages)
                    running[task].append(self.start(f"{run}/{epoch}/{task}.{tried[task]}", work))
                elif ended:
                    return messages
            if all(message is not None for message in messages):
                return messages
            driver.pause()

    def _attempt(
        self, epoch: int, task: int, rows: list[Row], messages: list[Prepared | None]
    ) -> Callable[[Port], None]:
        def work(port: Port) -> None:
            message = Prepared(QUERY, epoch, len(rows), sum(map(hash, rows)) % 2**64, ("t",))
            if rows:
                part = exactly_once.begin(port, QUERY, epoch, task)
                if part is None:
                    message = replace(message, decided=True)
                else:
                    identity = port.identify(part.name)
                    for row in rows:
                        port.write(identity, [row])
                    part = part._replace(producer_id=identity.producer_id, epoch=identity.epoch)
                    message = replace(message, part=part)
            port._actor.pause()  # the report is on its way
            if messages[task] is None:
                messages[task] = message

        return work
