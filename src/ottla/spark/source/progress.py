"""Commits a streaming query's progress to a consumer group, so that every tool that shows lag shows that of the query.

The planner of a query (stream.py) knows which offsets are done: those before the start of the next batch. It does not
know the query's name and ids, because Spark passes these to the tasks only. So the task of a batch's first split
announces them: it commits the offset where it begins, with the ids as metadata. The planner reads that back:

    planner ── split with a nonce ──► task ── commit: announcement {nonce, name, query, run, batch} ──► group
    planner ◄── the announcement with that nonce ──────────────────────────────────────────────────────── group
    planner ── commit: every partition at its offset, {query, run, batch} ─────────────────────────────► group

The group is `ottla.group`. By default it is `ottla-spark-` and the query's name, or, for a query without a name, the
checkpoint's token. The group is checked before the first commit of a run: one that others use is left alone
(spark/groups.py). While the name is not yet known, the first announcement of a run goes to the group with the token;
that group is deleted once the name is known. A late announcement, of a task that ran twice, can set one partition back.
After `REFRESH_S` it is correct again.

Failures here are only warnings. The checkpoint is what counts for a query; a group only shows it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.client.failure import Failed, Refused
from ottla.client.groups import Committed, commit, delete_group, read_offsets
from ottla.errors import ErrorCode
from ottla.spark.groups import QUERY, Foreign, check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.client.cluster import Cluster, TopicPartition

log = logging.getLogger("ottla.spark")

KEYS: Final = {"query", "run", "batch", "name", "nonce", "loses_in_s"}  # of the metadata written here
REFRESH_S: Final = 60.0  # an idle query commits again, so that its offsets do not expire
PAUSE_S: Final = 10.0  # nothing is tried for this long after a failure, so that batches do not wait every time
PAUSE_S_MAX: Final = 600.0  # the pause doubles after each further failure, up to this
NAME_SIZE_MAX: Final = 255  # brokers accept 4 KiB of metadata, and JSON may take twelve bytes for one letter
# What the coordinator of a group with members answers to a commit from outside.
MEMBERS: Final = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


class QueryIdentity(NamedTuple):
    """A query's name and ids, as Spark passes them to its tasks."""

    name: str | None
    query: str
    run: str
    batch: int

    def metadata(self, more: Mapping[str, int]) -> str:
        return _compact({"query": self.query, "run": self.run, "batch": self.batch, **more})


class Announcement(NamedTuple):
    """What the task of a batch's first split announces, and to which group."""

    group: str
    nonce: str


class Properties(Protocol):
    def getLocalProperty(self, key: str) -> str | None: ...  # as PySpark spells it


def identity(task: Properties) -> QueryIdentity:
    """From the local properties of a query's task. The first line of the description is the name."""
    first = (task.getLocalProperty("spark.job.description") or "").split("\n", 1)[0]
    return QueryIdentity(
        None if not first or first.startswith("id = ") else first[:NAME_SIZE_MAX],
        task.getLocalProperty("sql.streaming.queryId") or "",
        task.getLocalProperty("spark.jobGroup.id") or "",
        int(task.getLocalProperty("streaming.sql.batchId") or -1),
    )


def format_announcement(identity: QueryIdentity, nonce: str) -> str:
    return _compact({"nonce": nonce, **identity._asdict()})


def understood(metadata: str, nonce: str) -> QueryIdentity | None:
    """The identity in this metadata, if it is the announcement with that nonce."""
    try:
        found: Any = json.loads(metadata)
        if found["nonce"] != nonce:
            return None
        return QueryIdentity(*(found[name] for name in QueryIdentity._fields))
    except (ValueError, KeyError, TypeError):
        return None


def _compact(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def announce(cluster: Cluster, where: TopicPartition, offset: int, told: Announcement, task: Properties) -> None:
    """In a task: announce the query, and that everything before this offset is done."""
    commit(cluster, told.group, {where: Committed(offset, format_announcement(identity(task), told.nonce))})


def explain(error: Failed) -> str:
    """The error, with a fix if consumers use the group."""
    if isinstance(error, Refused) and error.code in MEMBERS:
        return f"{error}; consumers use this group, set ottla.group to another name"
    if isinstance(error, Foreign):
        return f"{error} (ottla.group)"
    return str(error)


class Progress:
    """In the planner: commits the offsets that are done."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        token: str,
        *,
        group: str | None,
        prefix: str | None,
        nonce: Callable[[], str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.token = token
        self._connect = connect
        self._cluster: Cluster | None = None
        self._explicit = group
        self._nonce = nonce
        self._now = now
        self._begin = f"{prefix}-" if prefix else QUERY
        self._rendezvous = f"{self._begin}{token}"
        self._identity: QueryIdentity | None = None
        self._waiting: tuple[TopicPartition, Announcement] | None = None
        self._offsets: Mapping[TopicPartition, int] = {}
        self._told: tuple[dict[TopicPartition, int], str] | None = None
        self._told_at = 0.0
        self._ours: set[str] = set()  # groups that were checked
        self._leftover = False  # whether there is a group that was only needed to find the name
        self._silent_until = 0.0
        self._pause_s = PAUSE_S
        self._more: Mapping[str, int] = {}
        self._lock = threading.RLock()  # the watch calls `note` from its own thread

    @property
    def group(self) -> str | None:
        """Where progress is committed; None while the query's name is not known."""
        if self._explicit is not None:
            return self._explicit
        if self._identity is None:
            return None
        name = self._identity.name
        if name is None:
            return self._rendezvous
        return f"{self._begin}{name}"

    def announcement(self, first: TopicPartition) -> Announcement | None:
        """For the first split of a batch."""
        with self._lock:
            if self._now() < self._silent_until:
                return None
            told = Announcement(self.group or self._rendezvous, self._nonce())
            try:
                self._check(told.group)
            except Failed as error:
                self._fall_silent(error)
                return None
            self._leftover |= told.group != self._explicit and self._identity is None
            self._waiting = (first, told)
            return told

    def done(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Everything before these offsets is done."""
        with self._lock:
            self._offsets = offsets
            self._say(last=True)

    def note(self, more: Mapping[str, int]) -> None:
        """Set extra metadata, until the next note. It is committed at once, because a batch may take long."""
        with self._lock:
            if more or self._more:
                self._more = more
                self._say(last=False)

    def _say(self, *, last: bool) -> None:
        """Commit what is new. `last`: do not expect a later announcement of the last batch."""
        now = self._now()
        if now < self._silent_until or not self._offsets:
            return
        try:
            self._listen(last=last)
            group = self.group
            if group is None:
                return
            metadata = self._identity.metadata(self._more) if self._identity else _compact(dict(self._more))
            offsets = dict(self._offsets)
            if self._waiting is not None:  # a pending announcement must not be overwritten
                offsets.pop(self._waiting[0], None)
            told = (offsets, metadata)
            if told == self._told and now < self._told_at + REFRESH_S:
                return
            commits = {where: Committed(offset, metadata) for where, offset in offsets.items()}
            self._check(group)
            commit(self._client(), group, commits)
            self._told, self._told_at, self._pause_s = told, now, PAUSE_S
            self._tidy(group)
        except Failed as error:
            self._fall_silent(error)

    def _check(self, group: str) -> None:
        if group not in self._ours:
            check(self._client(), group, KEYS)
            self._ours.add(group)

    def _fall_silent(self, error: Failed) -> None:
        self._silent_until, self._pause_s = self._now() + self._pause_s, min(2 * self._pause_s, PAUSE_S_MAX)
        self._ours.clear()
        self.forget()
        log.warning("the lag of this query cannot be shown for now, its records are safe: %s", explain(error))

    def stop(self) -> None:
        """End of the query. A run of a single batch learns its name only now."""
        with self._lock:
            self.forget()  # a signal handler may have called this, at any point
            self._say(last=True)
            self.forget()

    def forget(self) -> None:
        """Drop the connection and connect again next time."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _listen(self, *, last: bool) -> None:
        """Read the announcement of the last batch. If it never came, do not wait for it: the next batch has one too."""
        if self._waiting is None:
            return
        where, told = self._waiting
        found = read_offsets(self._client(), told.group, [where]).get(where)
        heard = understood(found.metadata, told.nonce) if found else None
        self._identity = heard or self._identity
        if heard or last:
            self._waiting = None

    def _tidy(self, group: str) -> None:
        if self._leftover and group != self._rendezvous:
            delete_group(self._client(), self._rendezvous)
        self._leftover = False

    def _client(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self._connect()
        return self._cluster
