"""Options that name a file or environment variable instead of a value, so that secrets stay out of configurations.

    sasl.jaas.config.file=/run/secrets/jaas     the content of a file, without trailing line ends
    sasl.password.env=KAFKA_PASSWORD            an environment variable

The process that needs the value reads it when it is needed. Only the path or the name is stored, shown or sent to other
processes, and a changed value is picked up at the next read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ottla.client.failure import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = ".file"
ENV: Final = ".env"
SIZE_MAX: Final = 1 << 20  # bytes; keys with their chains are far smaller


def base(name: str) -> str:
    """The option name without `.file` or `.env`."""
    return name.removesuffix(FILE).removesuffix(ENV)


def refers(options: Mapping[str, str]) -> bool:
    """Whether any option is a reference instead of a value."""
    return any(name.endswith((FILE, ENV)) for name in options)


def resolve(options: Mapping[str, str]) -> dict[str, str]:
    """The options with references replaced by their values."""
    found: dict[str, str] = {}
    said: dict[str, str] = {}
    for name, value in options.items():
        about = base(name)
        if about in said:
            raise Failed(f"{said[about]} and {name} are both given: keep one of them")
        said[about] = name
        if name.endswith(FILE):
            found[about] = from_file(name, value)
        elif name.endswith(ENV):
            found[about] = from_environment(name, value)
        else:
            found[about] = value
    return found


def from_file(name: str, path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(SIZE_MAX + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Failed(
            f"{name}={path}: {why}: every machine that talks to the cluster needs the file, the driver's and the "
            "workers', readable for the user who runs there"
        ) from None
    if len(content) > SIZE_MAX:
        raise Failed(f"{name}={path}: larger than {SIZE_MAX >> 20} MiB, too large for a secret: name another file")
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise Failed(f"{name}={path}: expected text in UTF-8") from None
    if not text:
        raise Failed(f"{name}={path}: the file is empty")
    return text


def from_environment(name: str, variable: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise Failed(
            f"{name}={variable}: the environment of this process has no {variable}: set it for the driver and, by "
            f"spark.executorEnv.{variable} or the workers' own environment, where tasks run"
        )
    return value
