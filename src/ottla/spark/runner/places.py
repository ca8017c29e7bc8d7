"""Where a run puts its tables: in its own folder, or where an option says, on any storage.

OPTIONS = (Option("path", "", "The folder or URL of the table."), *STORAGE)
located(run, run["path"], "tables", "orders")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.secret import resolve
from ottla.spark.runner.pipeline import Option
from ottla.spark.storage.location import Location

if TYPE_CHECKING:
    from ottla.spark.runner.pipeline import Run

STORAGE: Final = (
    Option(
        "storage.endpoint", "", "Of S3 or what speaks its protocol, as https://host:9000; empty: $AWS_ENDPOINT_URL."
    ),
    Option("storage.region", "", "Of the bucket; empty: $AWS_REGION."),
    Option("storage.key", "", "An access key; empty: as the store's own tools find one."),
    Option("storage.secret", "", "The secret of that key, or of the account; better by the two below."),
    Option("storage.secret.file", "", "A file with it, on every machine."),
    Option("storage.secret.env", "", "A variable with it, on every machine."),
)


def locate(run: Run, path: str, *default: str) -> Location:
    """The place that a path or URL names, or a folder below the run's own; refused if nobody can open it."""
    prefix = "storage."
    given = {
        name.removeprefix(prefix): value for name, value in run.values.items() if name.startswith(prefix) and value
    }
    resolve(given)  # a reference that leads nowhere is told now
    return Location.parse(path or run.folder.joinpath(*default), given)
