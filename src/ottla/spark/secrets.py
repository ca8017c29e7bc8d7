"""Secrets of every client in a Spark job: clusters, registries, storage. Which they are, and how not to show them.

    kafka.sasl.jaas.config.file=/run/secrets/jaas     .option(...) of source and sink
    sasl.password.env=KAFKA_PASSWORD                  --property of a pipeline, and files of client properties
    Private.of({"aws_secret_access_key.file": ...})     storage, and whatever else takes options

Any of them is given by `.file` or `.env` behind its name (client/secret.py). Then plans, event logs, checkpoints and
command lines have the path or the name, and each process that connects looks the value up for itself. One that is given
as it is travels inside of pickled objects, and in the options that Spark keeps. We leave it out of all that we print;
Spark leaves out what it knows as a secret, by the word `password` in its name or its value (`spark.redaction.regex`). A
private key has no such word, so that Spark would write it into its event log: in the open, it is refused (`check`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.failure import Failed
from ottla.client.secret import ENV, FILE, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

HIDDEN: Final = "(hidden)"
# Kafka's, those of object stores under the names of pyarrow, fsspec, deltalake and Hadoop, and a registry's.
NAMES: Final = re.compile(
    r"password|passphrase|secret|jaas|token|credential|keystore\.key$|access.?key|account.?key|storage.?key|api.?key"
    r"|signature|service.?account|user\.?info|(^|[._])sas$",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Is the value of this option for nobody's eyes? A reference to one may be seen."""
    return not name.endswith((FILE, ENV)) and NAMES.search(name) is not None


def redact(options: Mapping[str, str]) -> dict[str, str]:
    """The options as they may be printed and written down."""
    return {name: HIDDEN if is_secret(name) and value else value for name, value in options.items()}


@dataclass(frozen=True)
class Private:
    """Options with secrets among them, as a value that travels to the workers; looked up there, by `reveal`."""

    given: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Private:
        """Those options; a reference that leads nowhere is told now."""
        resolve(options)
        return cls(tuple(sorted(options.items())))

    def reveal(self) -> dict[str, str]:
        return resolve(dict(self.given))

    def __repr__(self) -> str:
        return f"Private({redact(dict(self.given))})"


def find_exposed(options: Mapping[str, str]) -> list[str]:
    """The secrets that stand in the open in these options, by name."""
    return sorted(name for name, value in options.items() if value and is_secret(name))


def check(options: Mapping[str, str]) -> None:
    """Refuse what Spark would show, of the options of a source or sink."""
    name = "kafka.ssl.keystore.key"
    if "PRIVATE KEY" in options.get(name, "") and "ENCRYPTED" not in options[name]:
        raise Failed(
            f"{name} in the open would be in Spark's event log: put the key into a file and give {name}.file, or give "
            f"{name}.env"
        )
