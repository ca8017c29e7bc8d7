"""Dead letters of an export: records that do not fit into the table, each once in a separate topic.

    task      puts such records into a file beside its Parquet files, with the reason of each
    driver    before it commits the table: all of them to the topic, in one transaction with the offsets reached
    driver    commits the table

The offsets are committed to a group that belongs to the table, so letters and their position appear together or not at
all. A driver that dies between the two commits leaves the letters ahead of the table. The next one reads the same
records again, and skips the letters before that position. Each transaction begins with a fence: a driver that was
replaced writes no more letters, and without them it does not commit its files.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped, unused-ignore]

from ottla.client.groups import Committed, read_offsets
from ottla.client.transaction import add_offsets, end, identify
from ottla.records.columns import HEADERS
from ottla.spark import dead_letter
from ottla.spark.groups import LETTERS, check, is_ours
from ottla.spark.sink.producers import Producer
from ottla.spark.sink.sieve import letters, sift
from ottla.spark.sink.writing import Writer
from ottla.spark.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ottla.client.cluster import Cluster, TopicPartition
    from ottla.spark.sink.options import SinkOptions
    from ottla.spark.storage.location import Location

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("offset", pa.int64()),
        ("reason", pa.string()),
    ]
)
COPIED: Final = frozenset({"key", "value", "headers"})
KEYS: Final = ("letters", "topic")  # of the group's metadata
SUFFIX: Final = ".letters"
TIMEOUT_MS: Final = 60_000

log = logging.getLogger("ottla.spark")


class LetterFile(NamedTuple):
    """A file of dead letters, and where their records come from."""

    where: TopicPartition
    name: str


class AsideFile:
    """The records that one task puts aside. The file exists once there is a record; two threads may add."""

    def __init__(self, folder: Location) -> None:
        self._store = Store(folder)
        self._lock = threading.Lock()
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self.name = f"{uuid.uuid4().hex}{SUFFIX}"
        self.rows = 0

    def sift(self, rows: pa.Table, found: Iterable[tuple[pa.Array, str]]) -> pa.Table:
        """The rows that no mask marks; the others are put aside."""
        good, bad, reasons = sift(rows, iter(found))
        if reasons:
            self._add(bad, reasons)
        return good

    def _add(self, bad: pa.Table, reasons: list[str]) -> None:
        columns = [*(bad.column(name) for name in ("key", "value")), self._headers(bad), bad.column("offset")]
        made = pa.table([*columns, pa.array(reasons, pa.string())], schema=SCHEMA)
        with self._lock:
            if self._writer is None:
                self._output = self._store.output(self.name)
                self._writer = pa.ipc.new_file(self._output, SCHEMA)
            self._writer.write_table(made)
            self.rows += made.num_rows

    def _headers(self, bad: pa.Table) -> pa.Array | pa.ChunkedArray:
        if "headers" not in bad.column_names:
            return pa.nulls(bad.num_rows, HEADERS)
        return bad.column("headers").cast(HEADERS)

    def close(self) -> str:
        """The name of the file, if there is one."""
        if self._writer is None:
            return ""
        self._writer.close()
        self._output.close()
        return self.name


class DeadLetters:
    """The driver's part."""

    def __init__(self, cluster: Cluster, options: SinkOptions, table: str, folder: Location) -> None:
        self._cluster = cluster
        self._options = options
        self._table = table
        self._store = Store(folder)
        self._name = f"{LETTERS}{table}"
        self._checked = False

    def send(self, asides: Iterable[LetterFile], reached: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> int:
        """Write all letters that were not written before, and the offsets reached, in one transaction."""
        if not self._checked:
            check(self._cluster, self._name, KEYS)
            self._checked = True
        identity = identify(self._cluster, self._name, timeout_ms=TIMEOUT_MS)
        before = self._read_positions(ids)
        topic = self._options.topic
        assert topic is not None, "export has given it"
        writer = Writer(Producer(self._cluster), self._options, COPIED, identity)
        count = _Counter()
        writer.write(count.over(self._letters(asides, before, writer.room(topic))))
        if count.rows:
            add_offsets(self._cluster, identity, self._name, self._positions(reached, ids))
            end(self._cluster, identity, commit=True)
            log.warning("export: %d records do not fit into the table and went to topic %s", count.rows, topic)
        return count.rows

    def forget(self, asides: Iterable[LetterFile]) -> None:
        """Remove the files, after their letters are written."""
        for one in asides:
            self._store.remove(one.name)

    def _letters(
        self, asides: Iterable[LetterFile], before: Mapping[TopicPartition, int], room: int
    ) -> Iterator[pa.RecordBatch]:
        for where, name in sorted(asides):
            with self._store.input(name) as file:
                reader = pa.ipc.open_file(file)
                for index in range(reader.num_record_batches):
                    rows = pa.Table.from_batches([reader.get_batch(index)])
                    rows = rows.filter(pc.greater_equal(rows.column("offset"), before.get(where, 0)))
                    if not rows.num_rows:
                        continue
                    reasons, offsets = (rows.column(name).to_pylist() for name in ("reason", "offset"))
                    partitions: list[int | None] = [where.partition] * len(offsets)
                    made = letters(
                        rows, reasons, COPIED, where.topic, partitions, room,
                        stage=dead_letter.DECODE, offsets=offsets,
                    )  # fmt: skip
                    yield from made.to_batches()

    def _positions(
        self, reached: Mapping[TopicPartition, int], ids: Mapping[str, str]
    ) -> dict[TopicPartition, Committed]:
        return {
            where: Committed(offset, json.dumps({"letters": self._table, "topic": ids[where.topic]}))
            for where, offset in reached.items()
            if where.topic in ids
        }

    def _read_positions(self, ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """The positions, except those of a topic that was recreated since."""
        return {
            where: found.offset
            for where, found in read_offsets(self._cluster, self._name).items()
            if is_ours(found.metadata, KEYS) and json.loads(found.metadata).get("topic") == ids.get(where.topic)
        }


class _Counter:
    def __init__(self) -> None:
        self.rows = 0

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            yield batch
