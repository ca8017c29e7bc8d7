"""Wraps a function over whole Arrow columns for Spark to call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def over_columns(function: Callable[[pa.Array], pa.Array], kind: DataType) -> Callable[[Column | str], Column]:
    def column(values: pa.Array) -> pa.Array:  # Spark resolves the annotations, so pa must be known here
        return function(values)

    column.__name__ = function.__name__  # shown in plans
    return arrow_udf(column, kind)  # type: ignore[call-overload, no-any-return]


def binary(values: pa.Array) -> pa.Array:
    """A column as plain bytes, even if it came as a string, or with wide offsets."""
    return values if values.type == pa.binary() else values.cast(pa.binary())
