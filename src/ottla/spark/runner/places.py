"""Where a run puts its tables: in its own folder, or at a path or URL on any storage.

OPTIONS = (Option("path", "", "The folder or URL of the table."), *STORAGE)
locate(run, run["path"], "tables", "orders")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.secret import resolve
from ottla.spark.runner.pipeline import Option
from ottla.spark.storage.location import Location

if TYPE_CHECKING:
    from ottla.spark.runner.pipeline import Run

STORAGE: Final = (
    Option("storage.endpoint", "", "Of S3 or a compatible store, such as https://host:9000; empty: $AWS_ENDPOINT_URL."),
    Option("storage.region", "", "Of the bucket; empty: $AWS_REGION."),
    Option("storage.key", "", "An access key; empty: found as the store's own tools do."),
    Option("storage.secret", "", "The secret of that key, or of the account; prefer the next two."),
    Option("storage.secret.file", "", "A file with the secret, on every machine."),
    Option("storage.secret.env", "", "An environment variable with the secret, on every machine."),
)


def locate(run: Run, path: str, *default: str) -> Location:
    """The location of a path or URL, or a folder below the run's own. Refused if it cannot be opened."""
    prefix = "storage."
    given = {
        name.removeprefix(prefix): value for name, value in run.values.items() if name.startswith(prefix) and value
    }
    resolve(given)  # a reference that cannot be resolved fails now
    return Location.parse(path or run.folder.joinpath(*default), given)
