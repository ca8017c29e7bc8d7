"""The fast path for Fetch: from a consumer's frame to regions of log files without decoding messages.

Native code parses the request (`read`) and writes the answer around the records (`answer`), or with few records in
it (`answer_whole`). What is left needs the broker's state: the session, the partitions, and the position of the
records in their logs.

Laws:
- It takes common requests only: versions 10 to 18, from a consumer without a session or in an open one, for at most
  ENTRIES_MAX partitions that are led here and have records. Everything else takes the general path (`fetch.Reading`):
  followers, reads from followers, errors, waiting, aborted transactions, a session that is opened or closed.
- Nothing is changed before it is clear that the request qualifies, except that the session takes over the partitions in
  the request. The general path does the same again.
- Both paths produce the same bytes and leave the same session (tests/handlers/test_fetch_shortcut.py). Without the
  native extension, or with an authorizer, quotas or an injected fault, which need decoded messages, only the general
  path is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clock import steady_ms
from ottla.errors import BrokerError
from ottla.handlers.reading import BY_ID
from ottla.records.native import fetch_reader
from ottla.replica.sessions import EPOCH_FINAL, NO_REPLICA

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.handlers.call import Parts, Peer
    from ottla.log.segment import Slice
    from ottla.quota.quotas import Quotas
    from ottla.records.native import FetchEntry, FetchPart, FetchReader
    from ottla.replica.partition import Partition
    from ottla.replica.sessions import FetchSession, Key, Watched
    from ottla.security.authorizer import Authorizer

VERSION_MIN = 10  # see native/src/fetch.rs
ENTRIES_MAX = 200
# An answer with fewer bytes of records is built in one piece: the copy is cheaper than a system call for the region.
COPIED_SIZE_MAX = 16 * 1024


def make(parts: Parts, version: int, authorizer: Authorizer | None, quotas: Quotas | None) -> FetchShortcut | None:
    """None if the broker has an authorizer or quotas."""
    reader = fetch_reader()
    if reader is None or version < VERSION_MIN or authorizer is not None or quotas is not None:
        return None
    return FetchShortcut(parts, version, reader)


class FetchShortcut:
    """The fast path of one version. Call it with a connection and a Fetch frame of that version.

    Returns the parts of the answer with the length prefix, or None: nothing was done.
    """

    __slots__ = ("_answer", "_answer_whole", "_by_id", "_find", "_parts", "_read", "_version")

    def __init__(self, parts: Parts, version: int, reader: FetchReader) -> None:
        self._parts = parts
        self._version = version
        self._by_id = version >= BY_ID
        self._read, self._answer, self._answer_whole = reader
        self._find: Callable[[Any, int], Partition | None] = (
            parts.replicas.find_led_by_id if self._by_id else parts.replicas.find_led
        )

    def gather(self, connection: Peer, frames: Sequence[memoryview]) -> list[Any]:
        """Handling several fetches together would not be cheaper."""
        return []

    def __call__(self, connection: Peer, frame: memoryview) -> list[Any] | None:
        asked = self._read(frame)
        if asked is None:
            return None
        correlation, max_wait_ms, min_bytes, max_bytes, committed, session_id, epoch, in_rack, entries, forgotten = (
            asked
        )
        session: FetchSession | None = None
        watched: list[Watched] = []
        if epoch == EPOCH_FINAL:
            if session_id or not entries or (len(entries) > 1 and len({one[:2] for one in entries}) < len(entries)):
                return None
        else:
            session = self._find_session(session_id, epoch, entries, forgotten)
            if session is None:
                return None
            watched = list(session.watched.values())
            entries = [(*one.key, one.leader_epoch, one.offset, one.size_max) for one in watched]

        find, total, min_one = self._find, 0, True
        room = min(max_bytes, self._parts.config.fetch_max_bytes)
        parts: list[FetchPart] = []
        regions: list[Slice | None] = []
        partitions: list[Partition] = []
        for topic, index, leader_epoch, offset, size_max in entries:
            partition = find(topic, index)
            if partition is None or (leader_epoch >= 0 and leader_epoch != partition.epoch):
                return None
            if in_rack and partition.followers is not None:
                return None  # a replica in the client's rack may be closer
            log = partition.log
            high = log.high
            stable = log.last_stable(high)
            try:
                limit = stable if committed else high
                found = log.read(offset, min(size_max, room), offset_max=limit, min_one=min_one)
                if found is None:
                    size = 0
                elif committed and log.list_aborted(offset, limit, found):
                    return None
                else:
                    size = found.size
                    total += size
                    room = max(0, room - size)
                    min_one = False
            except BrokerError:
                return None
            parts.append((index, high, stable, log.start, size))
            regions.append(found)
            partitions.append(partition)
        if total < min_bytes and max_wait_ms > 0:
            return None  # the general path waits for records

        if len(entries) == 1 and session is None:
            topics = [(entries[0][0], parts)]
        else:
            topics, regions = arrange(entries, parts, regions, watched)
        if total > COPIED_SIZE_MAX:
            pieces = self._answer(self._version, correlation, session_id, committed, topics)
            answer = None if pieces is None else join(pieces, regions)
        else:
            found_regions = [(one.file.fd, one.position, one.size) for one in regions if one is not None]
            whole = self._answer_whole(self._version, correlation, session_id, committed, topics, found_regions)
            answer = None if whole is None else [whole]
        if answer is None:
            return None
        if session is not None:
            session.advance(steady_ms(self._parts.clock))
            for one, (_, high, _, start, _) in zip(watched, parts, strict=True):
                one.high, one.start = high, start
            session.move_to_end([one for one, part in zip(watched, parts, strict=True) if part[4]])
        for partition, part in zip(partitions, parts, strict=True):
            partition.traffic.bytes_out += part[4]
        return answer

    def _find_session(
        self, session_id: int, epoch: int, entries: Sequence[FetchEntry], forgotten: Sequence[Key]
    ) -> FetchSession | None:
        """A consumer's session, updated with the partitions in the request."""
        sessions = self._parts.sessions
        session = sessions.find(session_id)
        if session is None or session.epoch != epoch or session.by_id is not self._by_id:
            return None
        if session.replica > NO_REPLICA or len(session.watched) + len(entries) > ENTRIES_MAX:
            return None
        if (entries or forgotten) and not sessions.change(session, entries, forgotten):
            return None
        for one in session.watched.values():
            if one.last_fetched_epoch >= 0:
                return None
        return session if session.watched else None


def arrange(
    entries: Sequence[FetchEntry],
    parts: Sequence[FetchPart],
    regions: Sequence[Slice | None],
    watched: Sequence[Watched],
) -> tuple[list[tuple[str | bytes, list[FetchPart]]], list[Slice | None]]:
    """The partitions by topic, and their regions in the same order. In a session, only partitions with news."""
    topics: dict[str | bytes, tuple[list[FetchPart], list[Slice | None]]] = {}
    for at, part in enumerate(parts):
        if watched and not part[4] and watched[at].high == part[1] and watched[at].start == part[3]:
            continue
        listed, found = topics.setdefault(entries[at][0], ([], []))
        listed.append(part)
        found.append(regions[at])
    return [(topic, one[0]) for topic, one in topics.items()], [region for one in topics.values() for region in one[1]]


def join(pieces: Sequence[bytes], regions: Sequence[Slice | None]) -> list[Any]:
    """The answer: records between the pieces."""
    answer: list[Any] = [pieces[0]]
    for piece, region in zip(pieces[1:], (one for one in regions if one is not None), strict=True):
        answer += region, piece
    return answer
