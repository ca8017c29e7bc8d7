"""Delta tables on any storage, through deltalake: no JAR, and only file names pass through the driver."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from ottla.client.failure import Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]

    from ottla.spark.storage.location import Location
    from ottla.spark.storage.writing import WrittenFile


def library() -> Any:
    try:
        import deltalake
    except ModuleNotFoundError:
        raise Failed("Delta tables need deltalake: pip install 'ottla[delta]', or --option format=parquet") from None
    return deltalake


def table_at(location: Location) -> Any:
    """The Delta table at a location; None if there is none."""
    url, options = location.delta()
    delta = library()
    try:
        there = delta.DeltaTable.is_deltatable(url, options)
        return delta.DeltaTable(url, storage_options=options) if there else None
    except (delta.exceptions.DeltaError, OSError) as error:
        raise Failed(f"the Delta table at {location} cannot be read ({str(error).partition(chr(10))[0]})") from None


def commit(
    location: Location,
    parts: Sequence[WrittenFile],
    schema: pa.Schema,
    *,
    by: Sequence[str] = (),
    overwrite: bool = False,
    mark: tuple[str, int] | None = None,
) -> None:
    """Add files in a table's folder to the table, in one commit. `mark`: a name and a number stored with it."""
    delta = library()
    url, options = location.delta()
    now_ms = int(time.time() * 1000)
    actions = [
        delta.transaction.AddAction(
            part.name, part.size, dict(part.by), now_ms, True, json.dumps({"numRecords": part.rows})
        )
        for part in parts
    ]
    marks = [delta.Transaction(*mark, now_ms)] if mark else None
    properties = delta.CommitProperties(app_transactions=marks)
    try:
        table = table_at(location)
        if table is None:
            table = delta.DeltaTable.create(
                url, schema, mode="ignore", partition_by=list(by) or None, storage_options=options
            )
        table.create_write_transaction(
            actions, "overwrite" if overwrite else "append", schema, list(by) or None, commit_properties=properties
        )
    except delta.exceptions.DeltaError as error:
        raise Failed(f"the Delta table at {location} refused a commit: {error}") from None
