"""What happens to bytes that are not a value of the schema.

    PERMISSIVE   the value becomes null; with error="name" it becomes a struct whose other fields are null and whose
                 field of that name has the reason, so that bad records can be put aside and counted
    FAILFAST     the query fails with that reason

A null column value is null in both: a tombstone is not an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import types

from ottla.client.failure import Failed

PERMISSIVE, FAILFAST = "PERMISSIVE", "FAILFAST"
SHOWN: Final = 24  # bytes of a bad value in its message


@dataclass(frozen=True)
class Outcome:
    mode: str = PERMISSIVE
    error: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in (PERMISSIVE, FAILFAST):
            raise Failed(f"mode={self.mode!r}: choose PERMISSIVE or FAILFAST")

    def spark_type(self, value: types.DataType) -> types.DataType:
        """The type of the decoded column: the schema's, with the field for the reason if requested."""
        if self.error is None:
            return value
        if not isinstance(value, types.StructType):
            raise Failed(
                f"error={self.error!r} needs a schema of a record: a {value.simpleString()} has no place for it"
            )
        if self.error in value.names:
            raise Failed(f"error={self.error!r}: the schema already has a field of that name, choose another")
        return types.StructType([*value.fields, types.StructField(self.error, types.StringType())])

    def fail(self, reason: str) -> str:
        """The reason, or Failed if rows may not fail."""
        if self.mode == FAILFAST:
            raise Failed(f"{reason}; decode with mode='PERMISSIVE' and error='...' to set such records aside")
        return reason


class Report:
    """The rows of one column that could not be read, and why."""

    def __init__(self, values: pa.Array, outcome: Outcome) -> None:
        self._values = values
        self._outcome = outcome
        self._reasons: dict[int, str] = {}

    def bad(self, row: int, why: str) -> None:
        why = why.encode(errors="replace").decode()  # text written by others may be invalid in a column
        self._reasons[row] = self._outcome.fail(f"a value of {preview(self._values[row].as_py())} {why}")

    def finish(self, made: pa.Array) -> pa.Array:
        """The decoded values (null where reading failed), with the reasons if requested."""
        name = self._outcome.error
        if name is None:
            return made
        reasons = pa.array([self._reasons.get(row) for row in range(len(made))], pa.string())
        fields = [*made.type, pa.field(name, pa.string())]
        return pa.StructArray.from_arrays([*made.flatten(), reasons], fields=fields, mask=self._values.is_null())


def preview(value: bytes) -> str:
    more = "..." if len(value) > SHOWN else ""
    return f"{len(value)} bytes ({value[:SHOWN].hex()}{more})"
