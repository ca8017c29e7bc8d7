"""Where a run puts its tables: in its own folder, or where an option says, on any storage.

OPTIONS = (Option("path", "", "The folder or URL of the table."), *STORAGE)
located(run, run["path"], "tables", "orders")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.spark.pipeline.pipeline import Option
from ottla.spark.storage.location import SETTINGS, Location

if TYPE_CHECKING:
    from ottla.spark.pipeline.pipeline import Run

STORAGE: Final = (
    Option(
        "storage.endpoint", "", "Of S3 or what speaks its protocol, such as https://host:9000; else $AWS_ENDPOINT_URL."
    ),
    Option("storage.region", "", "Of the bucket; else $AWS_REGION."),
    Option("storage.key", "", "An access key; else what the store's own tools would find."),
    Option("storage.secret", "", "That belongs to it."),
)


def located(run: Run, path: str, *default: str) -> Location:
    """The place that a path or URL names, or a folder below the run's own; refused if nobody can open it."""
    given = {name: run.values.get(f"storage.{name}", "") for name in SETTINGS}
    return Location.parse(
        path or run.folder.joinpath(*default), {name: value for name, value in given.items() if value}
    )
