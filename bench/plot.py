"""Panels of lines on logarithmic axes, as SVG text: what growth.py needs, and no more.

Each panel has two or more lines, a mark for each median and a bar from quartile to quartile. The y axis spans at least
a factor of ten, so that a flat line looks flat. Colours follow the reader's light or dark page.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.turns import Spread

COLUMNS = 3
WIDTH, HEIGHT = 300, 230
LEFT, RIGHT, TOP, BOTTOM = 48, 14, 34, 44  # around the plot of a panel
HEAD = 40
SPAN = 10.0
STYLE = """
    .page { fill: #ffffff; }
    .text { fill: #1f2328; }
    .note { fill: #59636e; font-size: 11px; }
    .grid { stroke: #d8dee4; stroke-width: 1; }
    .line { fill: none; stroke-width: 2; }
    .bar { stroke-width: 1.5; }
    .kafka { stroke: #b35900; } .kafka-mark { fill: #b35900; }
    .ottla { stroke: #2a6fbb; } .ottla-mark { fill: #2a6fbb; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; }
      .text { fill: #f0f6fc; }
      .note { fill: #9198a1; }
      .grid { stroke: #30363d; }
      .kafka { stroke: #f0a35e; } .kafka-mark { fill: #f0a35e; }
      .ottla { stroke: #6cb0f5; } .ottla-mark { fill: #6cb0f5; }
    }
"""

Line = list[tuple[float, "Spread"]]


class Panel(NamedTuple):
    title: str
    lines: Mapping[str, Line]  # by the name of the style: kafka, ottla


class Scale(NamedTuple):
    """From a value to a place, by its logarithm."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def draw(title: str, label: str, panels: Sequence[Panel], names: Mapping[str, str]) -> str:
    """The whole picture; `label` is the title of the x axes, `names` are the names of the lines."""
    columns = min(COLUMNS if len(panels) != 4 else 2, len(panels))
    width, height = columns * WIDTH, HEAD + math.ceil(len(panels) / columns) * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" font-family="ui-sans-serif, system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
    ]
    for number, (style, name) in enumerate(names.items()):
        x = LEFT + number * 130
        parts.append(f'<path class="line {style}" d="M{x} 20h24"/>{mark(style, x + 12, 20)}')
        parts.append(f'<text class="text" x="{x + 32}" y="24">{escape(name)}</text>')
    for number, panel in enumerate(panels):
        x, y = number % columns * WIDTH, HEAD + number // columns * HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *drawn(panel, label), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def drawn(panel: Panel, label: str) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    xs = sorted({x for x, _ in points})
    across = Scale(xs[0], max(xs[-1], xs[0] * 2), LEFT + 8, WIDTH - RIGHT - 8)
    down = Scale(*limits([value for _, spread in points for value in spread]), HEIGHT - BOTTOM, TOP)
    parts = [f'<text class="text" x="{LEFT}" y="{TOP - 12}">{escape(panel.title)}</text>']
    for value in ticks(down.low, down.high):
        y = down(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="note" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for x in xs:
        place = f'x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle"'
        parts.append(f'<text class="note" {place}>{f"{x:g}" if x < 10_000 else f"{x / 1000:g}k"}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="note" x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{escape(label)}</text>')
    for style, line in panel.lines.items():
        path = " ".join(f"{across(x):.1f},{down(spread.median):.1f}" for x, spread in line)
        parts.append(f'<polyline class="line {style}" points="{path}"/>')
        for x, (low, median, high) in line:
            parts.append(f'<path class="bar {style}" d="M{across(x):.1f} {down(low):.1f}V{down(high):.1f}"/>')
            parts.append(mark(style, across(x), down(median)))
    return parts


def mark(style: str, x: float, y: float) -> str:
    """A circle or a square, so that the lines differ without colours, too."""
    if style == "kafka":
        return f'<rect class="{style}-mark" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
    return f'<circle class="{style}-mark" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def limits(values: Sequence[float]) -> tuple[float, float]:
    """The range of a y axis: all values and a margin, and at least a factor of ten, with the values in its middle."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive) / 1.2, max(positive) * 1.2
    missing = math.sqrt(max(1.0, SPAN / (high / low)))
    return low / missing, high * missing


def ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade; only 1 where there are many decades."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    every = [step * 10.0**decade for decade in decades for step in steps]
    return [value for value in every if low <= value <= high]
