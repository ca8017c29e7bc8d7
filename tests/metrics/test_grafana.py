"""The dashboard asks for figures that there are, by labels that they have."""

import json
import re
from pathlib import Path
from typing import Any

from ottla.metrics.catalogue import FAMILIES
from ottla.metrics.family import HISTOGRAM

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"
SCRAPER = {"instance", "job"}  # labels that Prometheus adds
NAME = re.compile(r"\b(?:ottla|process|python)_\w+")
LABELS = re.compile(r"\b(?:by|on) \(([^)]*)\)|(\w+)=~?\"")


def queries() -> list[str]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return panels + [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]


def test_every_query_names_figures_and_labels_that_exist() -> None:
    known: dict[str, set[str]] = {}
    for family in FAMILIES:
        names = [family.name]
        if family.kind == HISTOGRAM:
            names = [f"{family.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")]
        known |= {name: {*family.labels, *({"le"} if family.kind == HISTOGRAM else ())} for name in names}
    found = queries()
    assert len(found) > 25
    for query in found:
        names = NAME.findall(query)
        assert names, query
        assert set(names) <= known.keys(), query
        labels = {label.strip() for many, one in LABELS.findall(query) for label in (many or one).split(",")}
        assert labels <= SCRAPER.union(*(known[name] for name in names)), query


def test_panels_do_not_overlap() -> None:
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
