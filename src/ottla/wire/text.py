"""The source of a generated function, line by line: shared by decoding.py and encoding.py."""

from __future__ import annotations

from typing import Any

from ottla.wire.schema import spec


class FunctionText:
    """A function for one message and version, in its plain or its sliced form."""

    def __init__(self, cls: type, version: int, space: dict[str, Any], *, sliced: bool) -> None:
        self.version = version
        self.sliced = sliced
        self.flexible = version >= spec(cls).flexible
        self.space = space  # the names that the source uses
        self.lines: list[str] = []
        self.depth = 0
        self.serial = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        """A name that is not used yet."""
        self.serial += 1
        return f"{stem}{self.serial}"

    @property
    def source(self) -> str:
        return "\n".join(self.lines) + "\n"
