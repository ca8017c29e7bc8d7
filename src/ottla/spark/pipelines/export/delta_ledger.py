"""The ledger of a Delta table: one Delta commit adds the files and stores the offsets they reach.

Delta has "application transactions": a number under a name, kept in the table's log and set in the same commit as the
files. The name is a partition, the number its next offset:

    ottla-export:<cluster id>:<topic id, or name where there are none>:<partition>  →  next offset

So the position is part of the table, survives checkpoints and clean-ups of its log, and every reader can see it. Two
drivers that commit the same partition conflict, and Delta itself refuses the second. If the file system has locks, the
second is refused when it starts (`_ottla/lock`).

Files are moved to their places before the commit; in a store without rename, tasks write them there. Files without a
commit (of a driver that was killed in between) are invisible to readers of Delta and removed by its VACUUM.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from ottla.client.failure import Failed
from ottla.spark.pipelines.export.exporting import NO_DAY
from ottla.spark.pipelines.export.ledger import STAGING, TableProgress, check_staged, prepare_staging, release, sweep
from ottla.spark.storage.delta import library
from ottla.spark.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.cluster import TopicPartition
    from ottla.spark.lock import Lock
    from ottla.spark.pipelines.export.exporting import ExportFile, TableShape
    from ottla.spark.storage.location import Location

APPLICATION: Final = "ottla-export"
DAY: Final = "day"


class DeltaLedger:
    def __init__(self, location: Location, shape: TableShape, cluster: str) -> None:
        self._delta: Any = library()
        self._store = Store(location)
        import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

        self._cluster = cluster
        self._shape = shape
        self._schema = shape.schema()
        if shape.by_day:
            self._schema = self._schema.append(pa.field(DAY, pa.date32()))
        self._by = [DAY] if shape.by_day else []
        self._lock: Lock | None = None
        self._run = ""
        self.staging: Location | None = None
        if self._store.renames:
            self._lock, self._run = prepare_staging(self._store)
            self.staging = location / STAGING / self._run
        else:
            sweep(self._store, locked=False)
        try:
            self._table = self._open_or_create()
        except BaseException:
            self.close()
            raise

    def read_progress(self, partitions: Mapping[TopicPartition, str]) -> TableProgress:
        self._table.update_incremental()
        found, ids = {}, {}
        for where, topic_id in partitions.items():
            offset = self._table.transaction_version(self._name(where, topic_id))
            if offset is not None:
                found[where] = offset
                ids[where.topic] = topic_id
        return TableProgress(self._cluster, found, ids)

    def commit(self, files: Sequence[ExportFile], reached: TableProgress) -> None:
        now_ms = int(time.time() * 1000)
        if self.staging is not None:
            check_staged(self._store, self._run, files)
            self._store.move_all([(f"{STAGING}/{self._run}/{file.staged}", file.name) for file in files])
        actions = [
            self._delta.transaction.AddAction(
                file.name,
                file.size,
                {DAY: None if file.day == NO_DAY else file.day} if self._by else {},
                now_ms,
                True,
                json.dumps(
                    {"numRecords": file.rows, "minValues": {"offset": file.first}, "maxValues": {"offset": file.last}}
                ),
            )
            for file in files
        ]
        marks = [
            self._delta.Transaction(self._name(where, reached.ids[where.topic]), offset, now_ms)
            for where, offset in reached.offsets.items()
        ]
        properties = self._delta.CommitProperties(max_commit_retries=0, app_transactions=marks)
        try:
            self._table.create_write_transaction(
                actions, "append", self._schema, self._by or None, commit_properties=properties
            )
        except self._delta.exceptions.CommitFailedError as error:
            raise Failed(
                f"another run writes to the table at {self._store}: stop one of them; this one added nothing ({error})"
            ) from None
        except self._delta.exceptions.DeltaError as error:
            raise Failed(f"the Delta table at {self._store} refused a commit: {error}") from None

    def table_id(self) -> str:
        return str(self._table.metadata().id)

    def close(self) -> None:
        if self.staging is not None:
            self._store.remove_folder(f"{STAGING}/{self._run}")
        release(self._lock)

    def _name(self, where: TopicPartition, topic_id: str) -> str:
        return f"{APPLICATION}:{self._cluster}:{topic_id}:{where.partition}"

    def _open_or_create(self) -> Any:
        """The table; created if it does not exist."""
        delta = self._delta
        try:
            url, options = self._store.location.delta()
            table = delta.DeltaTable.create(
                url, self._schema, mode="ignore", partition_by=self._by or None, storage_options=options
            )
        except delta.exceptions.DeltaError as error:
            raise Failed(f"cannot create a Delta table at {self._store}: {error}") from None
        self._shape.check(options_of(table), self._store)
        there = table.metadata().partition_columns
        if there != self._by:
            raise Failed(
                f"the Delta table at {self._store} is partitioned by {', '.join(there) or 'nothing'}: set partition to "
                f"{'day' if there == [DAY] else 'none'}, or choose another path"
            )
        return table


def options_of(table: Any) -> dict[str, str]:
    """The options that a Delta table was written with, as far as its columns show them."""
    kinds = {field.name: getattr(field.type, "type", "") for field in table.schema().fields}
    return {
        **{name: kinds[name] for name in ("key", "value") if name in kinds},
        "headers": str("headers" in kinds).lower(),
    }
