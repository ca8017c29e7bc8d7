"""Small tables that are replaced a day at a time, as Parquet files or as Delta tables.

    Daily(folder, "parquet").replace("pages", ["2026-01-31"], rows)   pages/day=2026-01-31/rows.parquet
    Daily(folder, "delta").replace("pages", ["2026-01-31"], rows)     pages/ with the log of `deltalake`

A day that is written again replaces what it was, at once for everybody who reads: so a run that was killed between two
tables is simply done again. Rows are Arrow tables with the day as text in the column `day`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

from ottla.client.failure import Failed

FORMATS: Final = ("parquet", "delta")
FILE: Final = "rows.parquet"


class Daily:
    def __init__(self, folder: Path, format: str) -> None:
        self._folder = folder
        self._delta = delta() if format == "delta" else None

    def replace(self, table: str, days: Sequence[str], rows: pa.Table) -> None:
        """Put these rows in the place of all that these days had."""
        if self._delta is None:
            for day in days:
                own = rows.filter(pyarrow.compute.equal(rows["day"], day)).drop_columns("day")
                self._replace_file(self._folder / table / f"day={day}", own)
            return
        place = str(self._folder / table)
        listed = ", ".join(f"'{day}'" for day in days)
        only = {"predicate": f"day in ({listed})"} if self._delta.DeltaTable.is_deltatable(place) else {}
        self._delta.write_deltalake(place, rows, mode="overwrite", partition_by=["day"], **only)

    def read(self, table: str, days: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Rows of these days, or of all."""
        place = self._folder / table
        if self._delta is not None:
            there = self._delta.DeltaTable(str(place))
            chosen = [("day", "in", list(days))] if days is not None else None
            found: list[dict[str, Any]] = pa.table(there.to_pyarrow_table(filters=chosen)).to_pylist()
            return found
        keys = pyarrow.dataset.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
        here = pyarrow.dataset.dataset(place, format="parquet", partitioning=keys, exclude_invalid_files=True)
        only = None if days is None else pyarrow.dataset.field("day").isin(list(days))
        found = here.to_table(filter=only).to_pylist()
        return found

    def _replace_file(self, folder: Path, rows: pa.Table) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"_{FILE}.new"  # readers of tables leave out names that begin so
        pyarrow.parquet.write_table(rows, draft)
        draft.replace(folder / FILE)


def delta() -> Any:
    try:
        import deltalake
    except ModuleNotFoundError:
        raise Failed("Delta tables need deltalake: pip install 'ottla[delta]', or --option format=parquet") from None
    return deltalake
