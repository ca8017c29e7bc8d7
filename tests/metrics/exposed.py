"""What a broker exposes, as numbers by name and labels. The reader is strict: it refuses what scrapers may refuse."""

from __future__ import annotations

import re
import urllib.request
from typing import NamedTuple

LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\n"])*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
SUFFIXES = ("_bucket", "_sum", "_count")


class Exposed(NamedTuple):
    values: dict[tuple[str, frozenset[tuple[str, str]]], float]
    kinds: dict[str, str]

    def value(self, name: str, **labels: str) -> float:
        return self.values[name, frozenset(labels.items())]

    def get(self, name: str, **labels: str) -> float | None:
        return self.values.get((name, frozenset(labels.items())))

    def total(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels, whatever others they have."""
        wanted = frozenset(labels.items())
        return sum(
            value for (found, all_labels), value in self.values.items() if found == name and wanted <= all_labels
        )

    def names(self) -> set[str]:
        return {name for name, _ in self.values}


def scrape(url: str) -> Exposed:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return parse(answer.read().decode())


def parse(text: str) -> Exposed:
    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    kinds: dict[str, str] = {}
    current = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current not in kinds, f"{current} stands in two places"
            kinds[current] = kind
            continue
        if line.startswith("# "):
            continue
        found = LINE.fullmatch(line)
        assert found, f"not a sample: {line}"
        name, labels, value = found.groups()
        base = name
        if kinds.get(current) == "histogram":
            base = next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)
        assert base == current, f"{name} under {current}"
        key = name, frozenset((label, unescaped(text)) for label, text in LABEL.findall(labels or ""))
        assert key not in values, f"twice: {line}"
        values[key] = float(value)
    return Exposed(values, kinds)


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)
