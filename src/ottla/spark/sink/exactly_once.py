"""The protocol of the exactly-once sink: what a task does before its rows, what the driver does after them.

    a task      begin:  read the log; is the epoch decided? then only say which rows there are
                        draw a ticket, choose a transactional id by it
                        write every row under that id, and leave the transaction open
    the driver  commit: 1 fence      whoever else is about to decide for this query has decided, or never will
                        2 read       the last decision; if it is of this epoch it must have the same content
                        3 verify     that each transaction is open and will be for a while, by the brokers' clocks
                        4 decide     one record in a transaction of the fence: from here on the epoch is written
                        5 finish     commit each transaction of the decision
                        6 sweep      abort what no decision has or will have
                abort:  1 and 2; then 5 if the epoch was decided, else abort the transactions of the messages

Each step may be the last one of its process, and each may be done twice: the next driver starts at 1 and finds in the
log how far its predecessor came. docs/design/004-exactly-once-sink.md goes through every window.

What is called here is a port, so that a test can run the same code over a model of a cluster that crashes anywhere.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.client.failure import Failed, Refused
from ottla.errors import ErrorCode
from ottla.spark.sink.decisions import (
    NOBODY,
    Attempt,
    Decision,
    Prepared,
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

    from ottla.client.transaction import Identity
    from ottla.spark.sink.content import Plan

log = logging.getLogger(__name__)

# Answers that say: not this producer, not in this state. A transaction that its decision named was ended by others.
LOST: Final = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
}
ONGOING: Final = "Ongoing"
ABORTS: Final = {"PrepareAbort", "CompleteAbort"}
MARGIN_MS_MAX: Final = 60_000  # what should be left of a transaction's time when it is decided, at most


class IdState(NamedTuple):
    """What the cluster knows of a transactional id."""

    name: str
    producer_id: int
    epoch: int
    started_ms: int
    timeout_ms: int  # beyond any real one where transactions do not time out (two-phase commit)


class Port(Protocol):
    def identify(self, name: str) -> Identity:
        """A new epoch for a transactional id. What was open under it is aborted and over when this returns, and no
        other holder of the id can do anything any more."""

    def end(self, identity: Identity) -> None:
        """Commit the open transaction; Refused with a code of LOST if that is not possible any more."""

    def states(self, names: Sequence[str]) -> dict[str, IdState]:
        """What is known; unknown ids are left out."""

    def ongoing(self, prefix: str) -> list[str]:
        """Ids that begin so and have an open transaction."""

    def last(self, query: str, *, surely: bool = True) -> Decision | None:
        """The last decision whose record is committed; if not `surely`, perhaps an earlier one, or none."""

    def open(self, fence: Identity, query: str) -> None:
        """Begin the fence's transaction: `states` tells by the brokers' clock when that was."""

    def record(self, fence: Identity, query: str, decision: Decision | None) -> None:
        """Append a decision in the open transaction of the fence, and commit it; None forgets those there are."""


def begin(port: Port, query: str, epoch: int, task: int) -> TaskPart | None:
    """The transactional id for the rows of an attempt; None if its epoch is decided."""
    last = port.last(query, surely=False)
    if last is not None and last.closes(epoch):
        return None
    drawn = port.identify(dispenser(query, task))
    ticket = Ticket(drawn.producer_id, drawn.epoch)
    return TaskPart(task, ticket, choose_id(last, Attempt(query, epoch, task, ticket)))


def begin_alone(query: str, epoch: int, task: int, attempt: int) -> TaskPart:
    """The same in a query that its driver has just made up: nothing is decided, and Spark has numbered its attempts."""
    ticket = Ticket(NOBODY, attempt)
    return TaskPart(task, ticket, Attempt(query, epoch, task, ticket).name)


def commit(
    port: Port,
    epoch: int,
    messages: Sequence[Prepared],
    *,
    plan: Plan | None = None,
    lost_epoch: int | None = None,
    kept_epoch: int | None = None,
    alone: bool = False,
) -> None:
    """Let the epoch's rows appear, all of them and once, whoever tried before and however far it came.

    `lost_epoch` is one that the user wants to leave behind, although some of its transactions timed out; `kept_epoch`
    one that is in the topic with other rows than it would have now. Who is `alone` has made up the query and ends it
    with this epoch: there is nothing to read before, and nothing to keep after.
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
    """Drop the rows of an epoch that failed. Spark calls this as well when `commit` has failed: if that was after its
    decision, the rows are in, and are made visible. So are those of a later epoch, where this one is refused as an old
    one: its driver may have died before that, and nobody else may come before its transactions time out."""
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
    """Abort whatever is open in a query that its driver has made up and given up: nobody else will."""
    for name in port.ongoing(attempts(query)):
        port.identify(name)


def of(messages: Iterable[Prepared]) -> str | None:
    """The query that the messages are of; None if there are none, for then there is nothing to do."""
    return next((message.query for message in messages), None)


def without(decision: Decision, ongoing: Iterable[str]) -> Decision:
    """The decision without ids that wait for their task's next rows and have an open transaction all the same.

    An attempt of a run that is over has taken such an id with the ticket that follows, so nobody will take it any more;
    left in the decision it would be spared by every sweep.
    """
    taken = set(ongoing).intersection(decision.waiting)
    return decision._replace(parts=tuple(part for part in decision.parts if part.name not in taken))


def verify(query: str, decision: Decision, states: Mapping[str, IdState], fence: IdState | None) -> None:
    """Nothing may be decided that cannot be finished: a transaction may have timed out, or is about to.

    How old one is, is told by the brokers' clocks: the fence's own transaction has just begun.
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
                "transaction.max.timeout.ms) or batches smaller, and start the query again"
            )
        margin_ms = min(MARGIN_MS_MAX, state.timeout_ms // 5)
        age_ms = fence.started_ms - state.started_ms
        if age_ms > state.timeout_ms - margin_ms:
            raise Failed(
                f"batch {decision.epoch} took {age_ms / 1000:.0f} s of the "
                f"{state.timeout_ms / 1000:.0f} s that a transaction may stay open, which leaves too little to commit "
                "it: nothing of it is in the topic; set kafka.transaction.timeout.ms higher or batches smaller, and "
                "start the query again"
            )


def forget(port: Port, query: str) -> None:
    """Let compaction take the decision of a query that nobody will ask for; left there it would only take space."""
    try:
        fence = port.identify(driver(query))
        port.open(fence, query)
        port.record(fence, query, None)
    except Failed as error:
        log.warning("the decision of query %s stays in the log: %s", query, error)


@contextmanager
def only_driver(query: str, epoch: int) -> Iterator[None]:
    """For what a driver does under its fence: if the brokers refuse it, another driver has fenced this one."""
    try:
        yield
    except Refused as error:
        if error.code not in LOST:
            raise
        raise overtaken(query, epoch) from None


def overtaken(query: str, epoch: int) -> Failed:
    return Failed(
        f"another driver took over query {query} while this one was committing batch {epoch}, which the other one will "
        "do: let one driver run on a checkpoint"
    )


def finish(port: Port, query: str, decision: Decision, *, accept_loss: bool = False) -> None:
    """Commit what was decided. A transaction that timed out since then is lost, and that must be said."""
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
            f"batch {decision.epoch} of query {query} is committed, and another driver has gone on from there: two of "
            "them run on the same checkpoint; stop one"
        )
    if len(lost) == len(decision.transactions) and set(fates) == {ABORTED}:
        undo(port, query, decision)
        raise Failed(
            f"batch {decision.epoch} of query {query} was decided, but the driver stopped before it was committed and "
            "stayed away for longer than its transactions stay open: nothing of it is in the topic, and the batch is "
            "open again; start the query again"
        )
    if accept_loss:
        log.warning("batch %s of query %s stays without what was lost of it", decision.epoch, query)
        return
    raise Failed(
        f"batch {decision.epoch} of query {query} is only partly in the topic: the driver stopped while it committed, "
        f"and stayed away for longer than its transactions stay open, so that {len(lost)} of "
        f"{len(decision.transactions)} were aborted by the brokers ({lost[0].transactional_id}); to go on without what "
        f"is missing, start the query with ottla.lost.batch={decision.epoch}; ottla.two.phase rules such losses out"
    )


ABORTED: Final = "aborted"
MOVED_ON: Final = "moved on"
FORGOTTEN: Final = "forgotten"


def fate(port: Port, lost: Identity) -> str:
    """What became of a transaction that was decided and cannot be committed.

    Brokers abort what times out under the next epoch, and leave it at that. Any other state is that of a successor: a
    task of the next epoch took the name over, which it does after this transaction was committed only.
    """
    state = port.states([str(lost.transactional_id)]).get(str(lost.transactional_id))
    if state is None:
        return FORGOTTEN
    same = (state.producer_id, state.epoch) == (lost.producer_id, lost.epoch + 1)
    return ABORTED if same and state.name in ABORTS else MOVED_ON


def undo(port: Port, query: str, decision: Decision) -> None:
    """Open an epoch again of which nothing was committed, unless somebody did so meanwhile."""
    fence = port.identify(driver(query))
    if port.last(query) == decision:
        with only_driver(query, decision.epoch):
            port.open(fence, query)
            port.record(fence, query, Decision(decision.epoch, (), void=True))


def sweep(port: Port, query: str, decision: Decision) -> None:
    """Abort what losers and dead drivers left open, so that readers of committed rows need not wait for its time-out.

    Another sweep follows with the next epoch, so failing here costs others some time, and must not cost this epoch.
    """
    try:
        for name in dead(decision, query, port.ongoing(attempts(query))):
            port.identify(name)
    except Failed as error:
        log.warning("transactions that are left over from query %s stay open for now: %s", query, error)
