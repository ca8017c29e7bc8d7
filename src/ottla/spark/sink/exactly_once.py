"""The protocol of the exactly-once sink: what a task does before it writes rows, what the driver does afterwards.

    a task      begin:  read the log; if the epoch is already decided, only report which rows there are
                        draw a ticket, choose a transactional id by it
                        write every row under that id, and leave the transaction open
    the driver  commit: 1 fence      after this, no other driver of this query can decide any more
                        2 read       the last decision; if it is for this epoch it must have the same content
                        3 verify     that each transaction is open and will be for a while, by the brokers' clocks
                        4 decide     one record in a transaction of the fence: from here on the epoch is written
                        5 finish     commit each transaction of the decision
                        6 sweep      abort what no decision has or will have
                abort:  1 and 2; then 5 if the epoch was decided, else abort the transactions of the messages

A process may die after any step, and each step may run twice: the next driver starts at 1 and finds in the log how far
its predecessor came. docs/design/004-exactly-once-sink.md goes through every window.

All calls go to a port, so that a test can run the same code over a model of a cluster that crashes anywhere.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.client.failure import Failed, Refused
from ottla.errors import ErrorCode
from ottla.spark.sink.decisions import (
    NOBODY,
    Prepared,
    SinkDecision,
    TaskAttempt,
    TaskPart,
    Ticket,
    attempts,
    choose_id,
    dead,
    decide,
    dispenser,
    driver,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ottla.client.transaction import ProducerIdentity
    from ottla.spark.sink.content import BatchPlan

log = logging.getLogger(__name__)

# Errors that mean: not this producer, or not in this state. Somebody else has ended the transaction of a decision.
LOST: Final = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
}
ONGOING: Final = "Ongoing"
ABORTS: Final = {"PrepareAbort", "CompleteAbort"}
MARGIN_MS_MAX: Final = 60_000  # how much of a transaction's timeout must be left when it is decided, at most


class IdState(NamedTuple):
    """What the cluster reports about a transactional id."""

    name: str
    producer_id: int
    epoch: int
    started_ms: int
    timeout_ms: int  # larger than any real one if transactions do not time out (two-phase commit)


class Port(Protocol):
    def identify(self, name: str) -> ProducerIdentity:
        """A new producer epoch for a transactional id. When this returns, an open transaction under the id is aborted,
        and no other holder of the id can do anything."""

    def end(self, identity: ProducerIdentity) -> None:
        """Commit the open transaction. Raises Refused with a code of LOST if that is no longer possible."""

    def states(self, names: Sequence[str]) -> dict[str, IdState]:
        """The states of these ids, without unknown ones."""

    def ongoing(self, prefix: str) -> list[str]:
        """Ids with this prefix that have an open transaction."""

    def last(self, query: str, *, surely: bool = True) -> SinkDecision | None:
        """The last decision whose record is committed. Without `surely`, it may be an earlier one, or none."""

    def open(self, fence: ProducerIdentity, query: str) -> None:
        """Begin the fence's transaction. `states` then has its start by the brokers' clock."""

    def record(self, fence: ProducerIdentity, query: str, decision: SinkDecision | None) -> None:
        """Append a decision in the open transaction of the fence, and commit it; None deletes the query's decisions."""


def begin(port: Port, query: str, epoch: int, task: int) -> TaskPart | None:
    """The transactional id for the rows of an attempt; None if its epoch is already decided."""
    last = port.last(query, surely=False)
    if last is not None and last.closes(epoch):
        return None
    drawn = port.identify(dispenser(query, task))
    ticket = Ticket(drawn.producer_id, drawn.epoch)
    return TaskPart(task, ticket, choose_id(last, TaskAttempt(query, epoch, task, ticket)))


def begin_alone(query: str, epoch: int, task: int, attempt: int) -> TaskPart:
    """The same for a query that its driver has just created: nothing is decided, and Spark has numbered its
    attempts."""
    ticket = Ticket(NOBODY, attempt)
    return TaskPart(task, ticket, TaskAttempt(query, epoch, task, ticket).name)


def commit(
    port: Port,
    epoch: int,
    messages: Sequence[Prepared],
    *,
    plan: BatchPlan | None = None,
    lost_epoch: int | None = None,
    kept_epoch: int | None = None,
    alone: bool = False,
) -> None:
    """Make the rows of the epoch visible, all of them and once, whoever tried before and however far it came.

    `lost_epoch` is one that the user wants to skip, although some of its transactions timed out. `kept_epoch` is one
    that is in the topic with other rows than it would have now. With `alone`, this driver has created the query for
    this epoch only: there is nothing to read before, and nothing to keep after.
    """
    query = of(messages)
    if query is None:
        return
    fence = port.identify(driver(query))
    last = None if alone else port.last(query)
    decision = decide(last, query, epoch, messages, plan, keep=kept_epoch == epoch)
    if decision is not last:
        with only_driver(query, epoch):
            port.open(fence, query)
            if decision.waiting:
                decision = without(decision, port.ongoing(attempts(query)))
            own = str(fence.transactional_id)
            states = port.states([own, *(str(identity.transactional_id) for identity in decision.transactions)])
            verify(query, decision, states, states.get(own))
            port.record(fence, query, decision)
    finish(port, query, decision, accept_loss=lost_epoch == epoch)
    sweep(port, query, decision)
    if alone:
        forget(port, query)


def abort(port: Port, epoch: int, messages: Sequence[Prepared]) -> None:
    """Drop the rows of a failed epoch. Spark also calls this when `commit` has failed. If that was after the decision,
    the rows are made visible. So are those of a later epoch, if this one is refused as old: the driver of the later one
    may have died before that, and nobody else may come before its transactions time out."""
    query = of(messages)
    if query is None:
        return
    port.identify(driver(query))
    last = port.last(query)
    if last is not None and last.closes(epoch):
        finish(port, query, last)
        sweep(port, query, last)  # of a repetition that was refused
        return
    for message in messages:
        if message.part is not None:
            port.identify(message.part.name)


def abandon(port: Port, query: str) -> None:
    """Abort whatever is open in a query that its driver created and gave up: nobody else will."""
    for name in port.ongoing(attempts(query)):
        port.identify(name)


def of(messages: Iterable[Prepared]) -> str | None:
    """The query of these messages; None if there are none, because then there is nothing to do."""
    return next((message.query for message in messages), None)


def without(decision: SinkDecision, ongoing: Iterable[str]) -> SinkDecision:
    """The decision without ids that were kept for their task's next rows but have an open transaction.

    An attempt of an earlier run has taken such an id with the next ticket, so nobody will take it again. If it stayed
    in the decision, every sweep would spare it.
    """
    taken = set(ongoing).intersection(decision.waiting)
    return decision._replace(parts=tuple(part for part in decision.parts if part.name not in taken))


def verify(query: str, decision: SinkDecision, states: Mapping[str, IdState], fence: IdState | None) -> None:
    """Nothing may be decided that cannot be finished: a transaction may have timed out, or be about to.

    Ages are measured by the brokers' clocks: the fence's own transaction has just begun.
    """
    if fence is None or fence.name != ONGOING:
        raise overtaken(query, decision.epoch)
    for identity in decision.transactions:
        state = states.get(str(identity.transactional_id))
        if state is None or (state.producer_id, state.epoch, state.name) != (
            identity.producer_id,
            identity.epoch,
            ONGOING,
        ):
            raise Failed(
                f"batch {decision.epoch} took longer than a transaction may stay open, and was aborted: nothing of it "
                "is in the topic; set kafka.transaction.timeout.ms higher (the brokers allow up to their "
                "transaction.max.timeout.ms) or batches smaller, and restart the query"
            )
        margin_ms = min(MARGIN_MS_MAX, state.timeout_ms // 5)
        age_ms = fence.started_ms - state.started_ms
        if age_ms > state.timeout_ms - margin_ms:
            raise Failed(
                f"batch {decision.epoch} took {age_ms / 1000:.0f} s of the "
                f"{state.timeout_ms / 1000:.0f} s that a transaction may stay open, which leaves too little to commit "
                "it: nothing of it is in the topic; set kafka.transaction.timeout.ms higher or batches smaller, and "
                "restart the query"
            )


def forget(port: Port, query: str) -> None:
    """Let compaction remove the decision of a query that nobody will ask for. Otherwise it would only take space."""
    try:
        fence = port.identify(driver(query))
        port.open(fence, query)
        port.record(fence, query, None)
    except Failed as error:
        log.warning("the decision of query %s stays in the log: %s", query, error)


@contextmanager
def only_driver(query: str, epoch: int) -> Iterator[None]:
    """For what a driver does under its fence. If the brokers refuse it, another driver has fenced this one."""
    try:
        yield
    except Refused as error:
        if error.code not in LOST:
            raise
        raise overtaken(query, epoch) from None


def overtaken(query: str, epoch: int) -> Failed:
    return Failed(
        f"another driver took over query {query} while this one was committing batch {epoch}; the other one will "
        "commit it. Run only one driver on a checkpoint"
    )


def finish(port: Port, query: str, decision: SinkDecision, *, accept_loss: bool = False) -> None:
    """Commit what was decided. A transaction that timed out since then is lost, and that is reported."""
    lost = []
    for identity in decision.transactions:
        try:
            port.end(identity)
        except Refused as error:
            if error.code not in LOST:
                raise
            lost.append(identity)
    if not lost:
        return
    fates = [fate(port, identity) for identity in lost]
    if MOVED_ON in fates:
        raise Failed(
            f"batch {decision.epoch} of query {query} is committed, and another driver has continued from there: two "
            "of them run on the same checkpoint; stop one"
        )
    if len(lost) == len(decision.transactions) and set(fates) == {ABORTED}:
        undo(port, query, decision)
        raise Failed(
            f"batch {decision.epoch} of query {query} was decided, but the driver stopped before it was committed and "
            "stayed away for longer than its transactions stay open: nothing of it is in the topic, and the batch is "
            "open again; restart the query"
        )
    if accept_loss:
        log.warning("batch %s of query %s stays without its lost rows", decision.epoch, query)
        return
    raise Failed(
        f"batch {decision.epoch} of query {query} is only partly in the topic: the driver stopped while it committed, "
        f"and stayed away for longer than its transactions stay open, so that {len(lost)} of "
        f"{len(decision.transactions)} were aborted by the brokers ({lost[0].transactional_id}); to continue without "
        f"what is missing, start the query with ottla.lost.batch={decision.epoch}; ottla.two.phase prevents such losses"
    )


ABORTED: Final = "aborted"
MOVED_ON: Final = "moved on"
FORGOTTEN: Final = "forgotten"


def fate(port: Port, lost: ProducerIdentity) -> str:
    """What happened to a transaction that was decided and cannot be committed.

    Brokers abort a transaction that times out under the next producer epoch, and that is the last state. Any other
    state is that of a successor: a task of the next epoch took the name over, which only happens after this transaction
    was committed.
    """
    state = port.states([str(lost.transactional_id)]).get(str(lost.transactional_id))
    if state is None:
        return FORGOTTEN
    same = (state.producer_id, state.epoch) == (lost.producer_id, lost.epoch + 1)
    return ABORTED if same and state.name in ABORTS else MOVED_ON


def undo(port: Port, query: str, decision: SinkDecision) -> None:
    """Reopen an epoch of which nothing was committed, unless somebody did so meanwhile."""
    fence = port.identify(driver(query))
    if port.last(query) == decision:
        with only_driver(query, decision.epoch):
            port.open(fence, query)
            port.record(fence, query, SinkDecision(decision.epoch, (), void=True))


def sweep(port: Port, query: str, decision: SinkDecision) -> None:
    """Abort what losing attempts and dead drivers left open, so that read_committed consumers need not wait for its
    timeout.

    The next epoch sweeps again. So a failure here costs readers some time, and must not fail this epoch.
    """
    try:
        for name in dead(decision, query, port.ongoing(attempts(query))):
            port.identify(name)
    except Failed as error:
        log.warning("leftover transactions of query %s stay open for now: %s", query, error)
