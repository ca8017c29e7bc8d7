"""The decisions of the exactly-once sink: which transactions make up an epoch, and which can never be part of one.
Pure.

A query writes epoch after epoch (micro-batches). Each attempt of each task writes in its own transaction and leaves it
open. The driver then writes one record to a log, the decision, and commits the transactions that it names. An epoch is
in the topic once its decision is in the log, and not before. docs/design/004-exactly-once-sink.md has the proof. These
are its rules:

    one decision   an epoch is decided once: whoever comes later finds the decision and carries it out
    tickets        each attempt draws a number from its task's dispenser; no two draw the same
    names          an attempt makes a new transactional id from its ticket, or takes over that of the last decision if
                   its ticket is the very next one; so nobody else can touch an id that may be decided, and the number
                   of ids does not grow with the number of epochs
    same content   an epoch that is already decided is done only if it would write what the decision has: see `content`
    the dead       an id that is not younger than a decision and not in it can never be in a later one

    ottla-sink/QUERY                        the driver's id: fences drivers from each other, writes decisions
    ottla-sink/QUERY/TASK                   a dispenser: its producer epochs are the tickets; it never writes
    ottla-sink/QUERY/EPOCH/TASK.TICKET      the id of an attempt, with the epoch in which it was made
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from ottla.client.failure import Failed
from ottla.client.transaction import ProducerIdentity
from ottla.spark.sink.content import EpochContent, compare, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.spark.sink.content import BatchPlan

PREFIX: Final = "ottla-sink/"
FORMAT: Final = 1  # of a decision in the log
MADE_IN: Final = re.compile(r"(\d+)/\d+\.-?\d+\.\d+")
NOBODY: Final = -1


def driver(query: str) -> str:
    return f"{PREFIX}{query}"


def dispenser(query: str, task: int) -> str:
    return f"{PREFIX}{query}/{task}"


def attempts(query: str) -> str:
    """The prefix of the ids of all attempts of a query."""
    return f"{PREFIX}{query}/"


def epoch_of(query: str, name: str) -> int | None:
    """The epoch in which an attempt of this query made this id; None if none did."""
    prefix = attempts(query)
    found = MADE_IN.fullmatch(name[len(prefix) :]) if name.startswith(prefix) else None
    return int(found[1]) if found else None


class Ticket(NamedTuple):
    """What a dispenser returned: its producer id and epoch. The cluster gives out each pair once."""

    producer_id: int
    number: int

    def follows(self, other: Ticket) -> bool:
        return self.producer_id == other.producer_id and self.number == other.number + 1


class TaskAttempt(NamedTuple):
    """One try of one task to write its rows of one epoch."""

    query: str
    epoch: int
    task: int
    ticket: Ticket

    @property
    def name(self) -> str:
        """A transactional id that no other attempt makes."""
        ticket = f"{self.ticket.producer_id}.{self.ticket.number}"
        return f"{attempts(self.query)}{self.epoch}/{self.task}.{ticket}"


class TaskPart(NamedTuple):
    """A task's part of an epoch: an open transaction with its rows, or an unused id kept for the next epoch."""

    task: int
    ticket: Ticket
    name: str
    producer_id: int = NOBODY
    epoch: int = NOBODY

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.name, self.producer_id, self.epoch)


@dataclass(frozen=True)
class Prepared(WriterCommitMessage):
    """What an attempt reports to the driver when its rows are written. `rows` and `content` are set even if it wrote
    none."""

    query: str
    epoch: int
    rows: int
    digest: int = 0  # of the rows; the digests of all tasks add up
    topics: tuple[str, ...] = ()
    decided: bool = False  # the attempt found the epoch decided, and wrote nothing
    part: TaskPart | None = None  # None: no rows, no transaction


class SinkDecision(NamedTuple):
    """The record in the log: the transactions that make up the epoch."""

    epoch: int
    parts: tuple[TaskPart, ...]
    void: bool = False  # none of its transactions could be committed: the epoch is open again
    content: EpochContent | None = None  # None: decided by an Ottla version that did not store it

    @property
    def transactions(self) -> list[ProducerIdentity]:
        return [part.identity for part in self.parts if part.producer_id != NOBODY]

    @property
    def waiting(self) -> list[str]:
        """Ids kept for their task's next rows."""
        return [part.name for part in self.parts if part.producer_id == NOBODY]

    @property
    def names(self) -> set[str]:
        return {part.name for part in self.parts}

    def closes(self, epoch: int) -> bool:
        """Whether nothing more may be decided about this epoch."""
        return epoch < self.epoch or (epoch == self.epoch and not self.void)

    def encode(self) -> bytes:
        parts = [[part.task, *part.ticket, part.name, part.producer_id, part.epoch] for part in self.parts]
        content = {"content": self.content._asdict()} if self.content is not None else {}
        record = {"format": FORMAT, "epoch": self.epoch, "parts": parts, "void": self.void, **content}
        return json.dumps(record).encode()


def decode(value: bytes) -> SinkDecision:
    given = json.loads(value)
    if given["format"] != FORMAT:
        raise Failed(
            f"the log of decisions has a record of format {given['format']}, this version of ottla reads {FORMAT}: "
            "use the version that wrote it"
        )
    parts = (TaskPart(task, Ticket(owner, number), *rest) for task, owner, number, *rest in given["parts"])
    content = given.get("content")
    return SinkDecision(given["epoch"], tuple(parts), given["void"], load(content) if content is not None else None)


def decide(
    last: SinkDecision | None,
    query: str,
    epoch: int,
    messages: Sequence[Prepared],
    plan: BatchPlan | None = None,
    *,
    keep: bool = False,
) -> SinkDecision:
    """The decision about an epoch: `last` if it already decides this epoch, otherwise a new one.

    `plan` is what Spark planned for the epoch, if known. With `keep` the user accepts the existing decision for the
    epoch, although the rows differ.
    """
    if last is not None and last.epoch > epoch:
        raise Failed(
            f"batch {epoch} of query {query} is older than batch {last.epoch}, which the sink already has: either "
            "another driver runs the same query, or its checkpoint is an old copy; continue with the newest "
            "checkpoint, or start with a new one"
        )
    content = total(messages, plan)
    if last is not None and last.closes(epoch):
        if last.content is not None and not keep:
            compare(query, epoch, last.content, content)
        return last
    if any(message.decided for message in messages):
        if last is not None and last.void:
            raise Failed(f"batch {epoch} of query {query} was reopened while its tasks ran: restart the query")
        raise Failed(
            f"batch {epoch} of query {query} was decided when its tasks ran and is no longer: the sink's log of "
            "decisions lost a record; make sure that its topic is replicated, and restart the query"
        )
    parts = {part.task: part._replace(producer_id=NOBODY, epoch=NOBODY) for part in last.parts} if last else {}
    parts |= {message.part.task: message.part for message in messages if message.part is not None}
    return SinkDecision(epoch, tuple(parts[task] for task in sorted(parts)), content=content)


def total(messages: Sequence[Prepared], plan: BatchPlan | None) -> EpochContent:
    """What all tasks write together."""
    topics = {topic for message in messages for topic in message.topics}
    digest = sum(message.digest for message in messages) % 2**64
    return EpochContent(sum(message.rows for message in messages), digest, tuple(sorted(topics)), plan)


def choose_id(last: SinkDecision | None, me: TaskAttempt) -> str:
    """The transactional id of an attempt: the last one of its task, if the tickets show that nobody else has it."""
    for part in last.parts if last is not None else ():
        if part.task == me.task and me.ticket.follows(part.ticket):
            return part.name
    return me.name


def dead(standing: SinkDecision, query: str, names: Iterable[str]) -> list[str]:
    """Ids whose transactions no decision has or will have, given this one."""
    names = set(names) - standing.names
    return sorted(name for name in names if (epoch := epoch_of(query, name)) is not None and epoch <= standing.epoch)
