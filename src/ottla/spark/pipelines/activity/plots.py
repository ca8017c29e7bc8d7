"""Plots as inline SVG, for self-contained pages: bars over time, ranked bars, a funnel.

Colours are CSS variables of the page (`STYLE`), so that drawings suit light and dark mode. Texts and numbers are
escaped here, once. Every bar has a title, which browsers show on hover.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5b6470; --line: #d9dde3; --paper: #ffffff; --card: #f6f7f9;
  --bar: #2f6fb0; --bar-soft: #a9c6e3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e9ec; --soft: #a3acb8; --line: #363c45; --paper: #15181c;
  --card: #1d2126; --bar: #6aa9e6; --bar-soft: #2f4d6b; } }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
svg .soft { fill: var(--soft); }
svg .bar { fill: var(--bar); }
svg .back { fill: var(--bar-soft); }
svg .rule { stroke: var(--line); stroke-width: 1; }
"""
WIDTH: Final = 760
ROW: Final = 26
LABEL: Final = 210  # width of the names to the left of ranked bars
NUMBER: Final = 90  # and of the figures to the right, at least
DIGIT: Final = 8  # width of a character there
LETTERS_MAX: Final = 30


def columns(values: Sequence[tuple[str, float]], *, what: str, height: int = 200) -> str:
    """Bars over time: one for each (label, value), with a scale on the left and labels where there is room."""
    top, left, bottom = nice(max((value for _, value in values), default=0)), 48, 24
    plot = height - bottom - 8
    step = (WIDTH - left) / max(1, len(values))
    every = max(1, round(len(values) / 12))
    parts = []
    for share in (0, 0.5, 1):
        y = 8 + plot * (1 - share)
        parts.append(f'<line class="rule" x1="{left}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="soft" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{top * share:,.10g}</text>')
    for index, (label, value) in enumerate(values):
        tall = plot * value / top
        x = left + index * step
        parts.append(
            f'<rect class="bar" x="{x + step * 0.12:.1f}" y="{8 + plot - tall:.1f}" width="{step * 0.76:.1f}" '
            f'height="{tall:.1f}"><title>{escape(label)}: {value:,.10g} {escape(what)}</title></rect>'
        )
        if index % every == 0:
            middle = x + step / 2
            parts.append(
                f'<text class="soft" x="{middle:.1f}" y="{height - 6}" text-anchor="middle">{escape(label)}</text>'
            )
    return drawing(height, what, parts)


def ranking(values: Sequence[tuple[str, int]], *, what: str) -> str:
    """Horizontal bars in the given order, longest first, each with its name and figure."""
    return rows(values, what=what, notes=[f"{value:,}" for _, value in values])


def funnel(values: Sequence[tuple[str, int]], *, what: str) -> str:
    """Ranked bars whose figures also show which share of the first is left."""
    first = values[0][1] if values else 0
    notes = [f"{value:,} ({value / first:.0%})" if first else f"{value:,}" for _, value in values]
    return rows(values, what=what, notes=notes)


def rows(values: Sequence[tuple[str, int]], *, what: str, notes: Sequence[str]) -> str:
    top = max((value for _, value in values), default=0) or 1
    room = WIDTH - LABEL - max(NUMBER, 6 + DIGIT * max(map(len, notes), default=0))
    parts = []
    for index, ((label, value), note) in enumerate(zip(values, notes, strict=True)):
        y = index * ROW
        long = room * value / top
        shown = label if len(label) <= LETTERS_MAX else f"{label[: LETTERS_MAX - 1]}…"
        parts.append(f'<text x="{LABEL - 8}" y="{y + 17}" text-anchor="end">{escape(shown)}</text>')
        parts.append(
            f'<rect class="bar" x="{LABEL}" y="{y + 4}" width="{long:.1f}" height="{ROW - 9}" rx="2">'
            f"<title>{escape(label)}: {escape(note)} {escape(what)}</title></rect>"
        )
        parts.append(f'<text class="soft" x="{LABEL + long + 6:.1f}" y="{y + 17}">{escape(note)}</text>')
    return drawing(max(ROW, len(values) * ROW), what, parts)


def drawing(height: int, what: str, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(what)}">\n{inside}\n</svg>'


def nice(value: float) -> float:
    """The next round number above, for the top of a scale."""
    if value <= 0:
        return 1.0
    size = 1.0
    while size * 10 <= value:
        size *= 10
    return next(size * step for step in (1, 2, 4, 5, 6, 8, 10) if size * step >= value)
