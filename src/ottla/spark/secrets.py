"""Secrets of all clients in a Spark job (clusters, registries, storage): which options they are, and how to hide them.

    kafka.sasl.jaas.config.file=/run/secrets/jaas     .option(...) of source and sink
    sasl.password.env=KAFKA_PASSWORD                  --property of a pipeline, and files of client properties
    Private.of({"aws_secret_access_key.file": ...})     storage, and whatever else takes options

Each can be given with `.file` or `.env` after its name (client/secret.py). Then plans, event logs, checkpoints and
command lines contain only the path or the variable's name, and each process that connects looks the value up itself. A
secret that is given directly travels in pickled objects, and in the options that Spark keeps. Ottla leaves it out of
everything it prints. Spark leaves out what it recognises as a secret, by the word `password` in its name or its value
(`spark.redaction.regex`). A private key has no such word, and Spark would write it into its event log. So it is refused
if given directly (`check`).
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
# Names of secrets: Kafka's, those of object stores in pyarrow, fsspec, deltalake and Hadoop, and the registry's.
NAMES: Final = re.compile(
    r"password|passphrase|secret|jaas|token|credential|keystore\.key$|access.?key|account.?key|storage.?key|api.?key"
    r"|signature|service.?account|user\.?info|(^|[._])sas$",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Is the value of this option secret? A reference to a secret is not."""
    return not name.endswith((FILE, ENV)) and NAMES.search(name) is not None


def redact(options: Mapping[str, str]) -> dict[str, str]:
    """The options with secrets masked, for printing and storing."""
    return {name: HIDDEN if is_secret(name) and value else value for name, value in options.items()}


@dataclass(frozen=True)
class Private:
    """Options with secrets among them, as a value that travels to the workers. They are looked up there, by
    `reveal`."""

    given: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Private:
        """Those options. A reference that cannot be resolved fails now."""
        resolve(options)
        return cls(tuple(sorted(options.items())))

    def reveal(self) -> dict[str, str]:
        return resolve(dict(self.given))

    def __repr__(self) -> str:
        return f"Private({redact(dict(self.given))})"


def find_exposed(options: Mapping[str, str]) -> list[str]:
    """The names of secrets that are given directly in these options."""
    return sorted(name for name, value in options.items() if value and is_secret(name))


def check(options: Mapping[str, str]) -> None:
    """Refuse options of a source or sink whose secrets Spark would show."""
    name = "kafka.ssl.keystore.key"
    if "PRIVATE KEY" in options.get(name, "") and "ENCRYPTED" not in options[name]:
        raise Failed(
            f"{name} would appear in Spark's event log: put the key into a file and give {name}.file, or give "
            f"{name}.env"
        )
