"""The pages of `activity`'s report: one for each day and one for all days, as self-contained HTML.

    render(tables, changed, store)     tables: name → rows as dictionaries, as activity.py describes them

Pages are replaced as a whole, so a reader never sees half of one. Each says when it was made.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from ottla.spark.pipelines.activity import plots
from ottla.spark.storage.store import Store

Rows = Sequence[Mapping[str, Any]]

TOP: Final = 10
STYLE: Final = """
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 800px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 36px 0 10px; }
p { color: var(--soft); margin: 0 0 14px; } a { color: var(--bar); }
.figures { display: grid; grid-template-columns: repeat(4, 1fr); gap: 10px; margin: 18px 0; }
@media (max-width: 560px) { .figures { grid-template-columns: repeat(2, 1fr); } }
.figures div { background: var(--card); border-radius: 8px; padding: 10px 14px; }
.figures b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.figures span { color: var(--soft); font-size: 14px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 8px; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: normal; } th:first-child, td:first-child { text-align: left; }
footer { color: var(--soft); font-size: 14px; margin-top: 40px; }
"""
# Cards are in rows of four, on small screens of two: with eight of them no row is incomplete.
FIGURES: Final = ("visits", "users", "views", "clicks", "searches", "bounces", "broken", "ahead")
EXPLAINED: Final = {
    "visits": "A visit ends after a pause, and at midnight (UTC).",
    "funnel": "Visits that did this step and all above it.",
}


def render(tables: Mapping[str, Rows], changed: Collection[str], store: Store) -> list[str]:
    """Write the pages of changed days, and the one for all days. Returns their names, that one last.

    The table `days` has all days; the others need only have those that changed.
    """
    days = sorted(tables["days"], key=lambda row: str(row["day"]))
    pages = {f"{row['day']}.html": day_page(row, tables) for row in days if str(row["day"]) in changed}
    pages["index.html"] = index_page(days)
    for name, text in pages.items():
        store.put(name, text.encode())
    return list(pages)


def day_page(totals: Mapping[str, Any], tables: Mapping[str, Rows]) -> str:
    day = str(totals["day"])
    own = {name: [row for row in rows if str(row["day"]) == day] for name, rows in tables.items()}
    hours = {row["hour"]: row["visits"] for row in own["hours"]}
    parts = [
        f"<h1>Activity on {escape(day)}</h1>",
        '<p><a href="index.html">All days</a></p>',
        figures(totals),
        section(
            "Visits per hour",
            plots.columns([(f"{hour:02}:00", hours.get(hour, 0)) for hour in range(24)], what="visits"),
            EXPLAINED["visits"],
        ),
        section("Top pages", plots.ranking(top(own["pages"], "page", "views"), what="views")),
        section("Top searches", plots.ranking(top(own["searches"], "query", "searches"), what="searches")),
        section("Where visits come from", plots.ranking(top(own["referrers"], "referrer", "visits"), what="visits")),
        section(
            "From a page to an order",
            plots.funnel([(row["step"], row["visits"]) for row in sorted(own["funnel"], key=position)], what="visits"),
            EXPLAINED["funnel"],
        ),
    ]
    return page(f"Activity on {day}", parts)


def index_page(days: Rows) -> str:
    shown = [(str(row["day"])[5:], row["visits"]) for row in days]
    head = "".join(f"<th>{escape(name)}</th>" for name in ("day", *FIGURES))
    lines = []
    for row in reversed(days):
        day = escape(str(row["day"]))
        cells = "".join(f"<td>{row.get(name) or 0:,}</td>" for name in FIGURES)
        lines.append(f'<tr><td><a href="{day}.html">{day}</a></td>{cells}</tr>')
    return page(
        "Activity",
        [
            "<h1>Activity</h1>",
            section("Visits per day", plots.columns(shown, what="visits"), EXPLAINED["visits"]),
            f"<h2>Days</h2><table><tr>{head}</tr>{''.join(lines)}</table>",
        ],
    )


def figures(totals: Mapping[str, Any]) -> str:
    boxes = "".join(f"<div><b>{totals.get(name) or 0:,}</b><span>{escape(name)}</span></div>" for name in FIGURES)
    return f'<div class="figures">{boxes}</div>'


def section(title: str, plot: str, remark: str = "") -> str:
    said = f"<p>{escape(remark)}</p>" if remark else ""
    return f"<h2>{escape(title)}</h2>{said}{plot}"


def page(title: str, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{plots.STYLE}{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{inside}\n<footer>Made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC</footer>\n"
        "</main>\n</body>\n</html>\n"
    )


def top(rows: Rows, name: str, count: str) -> list[tuple[str, int]]:
    ranked = sorted(rows, key=lambda row: (-row[count], str(row[name])))
    return [(str(row[name]), row[count]) for row in ranked if row[count]][:TOP]


def position(row: Mapping[str, Any]) -> int:
    number: int = row["position"]
    return number
