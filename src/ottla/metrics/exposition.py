"""Formats samples as text: Prometheus 0.0.4, or OpenMetrics 1.0, which differs in counter names and the last line.

    # HELP ottla_requests_total Requests that were answered.
    # TYPE ottla_requests_total counter
    ottla_requests_total{api="Produce",version="9"} 42

The lines of a family are adjacent. `Exposition` takes samples in any order, and writes them in the order of the
catalogue.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING, Final

from ottla.metrics.catalogue import FAMILIES
from ottla.metrics.family import COUNTER, Distribution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.metrics.family import Family, Sample

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LINES_AT_ONCE: Final = 1000
UNUSUAL: Final = {inf: "+Inf", -inf: "-Inf"}


class Exposition:
    def __init__(self) -> None:
        self._lines: dict[Family, list[str]] = {family: [] for family in FAMILIES}
        self._names: dict[str, Family] = {}  # families that are not in the catalogue
        self._labels: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}  # cached: families share most labels

    def add(self, sample: Sample) -> None:
        family, values, value = sample
        lines = self._lines.get(family)
        if lines is None:
            # A family named by a client. If another client pushed it with another kind, the first kind counts.
            known = self._names.setdefault(family.name.removesuffix("_total"), family)
            if known.kind != family.kind:
                return
            lines = self._lines.setdefault(known, [])
        key = family.labels, values
        labels = self._labels.get(key)
        if labels is None:
            labels = self._labels[key] = format_labels(*key)
        if isinstance(value, Distribution):
            lines += histogram(family.name, labels, value)
        else:
            number = value if isinstance(value, int) or isfinite(value) else UNUSUAL.get(value, "NaN")
            lines.append(f"{family.name}{add_braces(labels)} {number}")

    def text(self, *, openly: bool = False) -> Iterator[str]:
        """The whole page, in pieces."""
        for family, lines in self._lines.items():
            if lines:
                yield head(family, openly=openly)
                for first in range(0, len(lines), LINES_AT_ONCE):
                    yield "\n".join([*lines[first : first + LINES_AT_ONCE], ""])
        if openly:
            yield "# EOF\n"


def head(family: Family, *, openly: bool) -> str:
    name = family.name.removesuffix("_total") if openly and family.kind == COUNTER else family.name
    meaning = family.meaning.replace("\\", "\\\\").replace("\n", "\\n")
    if openly:
        meaning = meaning.replace('"', '\\"')
    return f"# HELP {name} {meaning}\n# TYPE {name} {family.kind}\n"


def format_labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{name}="{escape(value)}"' for name, value in zip(names, values, strict=True))


def escape(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def add_braces(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def histogram(name: str, labels: str, value: Distribution) -> list[str]:
    before = f"{labels}," if labels else ""
    lines = [f'{name}_bucket{{{before}le="{bound}"}} {count}' for bound, count in value.cumulative()]
    return [
        *lines,
        f"{name}_sum{add_braces(labels)} {value.sum}",
        f"{name}_count{add_braces(labels)} {sum(value.counts)}",
    ]
