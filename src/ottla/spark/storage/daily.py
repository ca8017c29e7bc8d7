"""Small tables that are replaced a day at a time, as Parquet files or as Delta tables.

    Daily(place, "parquet").replace("pages", ["2026-01-31"], rows)   pages/day=2026-01-31/rows.parquet
    Daily(place, "delta").replace("pages", ["2026-01-31"], rows)     pages/ with the log of `deltalake`

Writing a day again replaces it atomically for all readers. So a run that was killed between two tables is simply
repeated. Rows are Arrow tables with the day as text in the column `day`.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

from ottla.spark.storage import delta
from ottla.spark.storage.location import Location
from ottla.spark.storage.store import Store

FORMATS: Final = ("parquet", "delta")
FILE: Final = "rows.parquet"


class Daily:
    def __init__(self, place: Location, format: str) -> None:
        self._place = place
        self._store = Store(place)
        self._delta = delta.library() if format == "delta" else None

    def replace(self, table: str, days: Sequence[str], rows: pa.Table) -> None:
        """Replace everything these days had with these rows."""
        if self._delta is None:
            for day in days:
                own = rows.filter(pyarrow.compute.equal(rows["day"], day)).drop_columns("day")
                data = pa.BufferOutputStream()
                pyarrow.parquet.write_table(own, data)
                self._store.put(f"{table}/day={day}/{FILE}", data.getvalue().to_pybytes())
            return
        url, options = (self._place / table).delta()
        listed = ", ".join(f"'{day}'" for day in days)
        there = self._delta.DeltaTable.is_deltatable(url, options)
        only = {"predicate": f"day in ({listed})", "schema_mode": "merge"} if there else {}
        self._delta.write_deltalake(url, rows, mode="overwrite", partition_by=["day"], storage_options=options, **only)

    def read(self, table: str, days: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Rows of these days, or of all. A column that an older version did not write is null."""
        if self._delta is not None:
            there = delta.table_at(self._place / table)
            chosen = [("day", "in", list(days))] if days is not None else None
            found: list[dict[str, Any]] = pa.table(there.to_pyarrow_table(filters=chosen)).to_pylist()
            return found
        keys = pyarrow.dataset.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
        files, base = (self._place / table).filesystem()
        here = pyarrow.dataset.dataset(
            base, filesystem=files, format="parquet", partitioning=keys, exclude_invalid_files=True
        )
        whole = pa.unify_schemas([here.schema, *(fragment.physical_schema for fragment in here.get_fragments())])
        only = None if days is None else pyarrow.dataset.field("day").isin(list(days))
        found = here.replace_schema(whole).to_table(filter=only).to_pylist()
        return found
