"""The topics that mirror and export copy: by name, or by pattern.

Patterns are regular expressions that match whole names; `*` is all. Internal topics, and those that Ottla keeps for
itself, must be given by name: a pattern never matches them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.failure import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.cluster import Topic

REGISTRY: Final = "ottla-mirrors"  # where mirrors register their topics, at the target
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
OWN: Final = re.compile(rf"__.*|_ottla.*|{REGISTRY}|.*\.{REGISTRY}")


@dataclass(frozen=True)
class TopicSelection:
    """The topics that a user selects, and a prefix for their names at the target."""

    names: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    prefix: str = ""

    @classmethod
    def parse(cls, text: str, prefix: str = "") -> TopicSelection:
        words = [word.strip() for word in text.split(",") if word.strip()]
        if not words:
            raise Failed("topics is empty: name topics, separated by commas, or a pattern such as site\\..*")
        names, patterns = [], []
        for word in words:
            if PLAIN_NAME.fullmatch(word):
                names.append(word)
                continue
            try:
                patterns.append(re.compile(".*" if word == "*" else word))
            except re.error as error:
                raise Failed(f"topics: {word} is neither a name nor a regular expression ({error})") from None
        if prefix and not PLAIN_NAME.fullmatch(prefix):
            raise Failed(f"prefix {prefix} cannot begin the name of a topic: use letters, digits, dots, - and _")
        return cls(tuple(names), tuple(patterns), prefix)

    def name_or(self, name: str) -> str:
        """The first topic that is given by name, for generated input."""
        return self.names[0] if self.names else name

    def choose(self, topics: Mapping[str, Topic]) -> dict[str, bool]:
        """Topic → whether it was named (not only matched by a pattern)."""
        found = {
            name: False
            for name, topic in sorted(topics.items())
            if not topic.internal and not OWN.fullmatch(name) and any(one.fullmatch(name) for one in self.patterns)
        }
        return found | {name: True for name in self.names if name in topics}
