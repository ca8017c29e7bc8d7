"""Plots: labels, scale, and names that are escaped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from ottla.spark.pipelines.activity.plots import columns, funnel, nice, ranking

EVIL = '<script>alert("1")</script>&'


def rectangles(svg: str) -> list[dict[str, str]]:
    return [dict(element.attrib) for element in ElementTree.fromstring(svg).iter("rect")]


def test_bars_are_as_tall_as_their_values() -> None:
    tall = [float(bar["height"]) for bar in rectangles(columns([("a", 10), ("b", 5), ("c", 0)], what="visits"))]
    assert tall[0] == pytest.approx(2 * tall[1], abs=0.1)
    assert tall[2] == 0


def test_ranked_bars_are_as_long_as_their_values() -> None:
    long = [float(bar["width"]) for bar in rectangles(ranking([("a", 8), ("b", 2)], what="views"))]
    assert long[0] == pytest.approx(4 * long[1], abs=0.1)


def test_a_funnel_says_what_is_left() -> None:
    assert re.findall(r"\((\d+%)\)</text>", funnel([("all", 200), ("cart", 50), ("order", 1)], what="visits")) == [
        "100%",
        "25%",
        "0%",
    ]


@pytest.mark.parametrize("most", [1, 1_710, 123_456_789])
def test_figures_end_inside_the_picture(most: int) -> None:
    """A character is up to 8 wide in 13 px."""
    svg = ElementTree.fromstring(funnel([("all", most), ("cart", 1)], what="visits"))
    (_, _, width, _) = svg.attrib["viewBox"].split()
    for text in svg.iter("text"):
        if text.get("text-anchor") != "end":
            assert float(text.attrib["x"]) + 8 * len(text.text or "") <= float(width)


@pytest.mark.parametrize("plot", [columns, ranking, funnel])
def test_names_stay_names(plot: type) -> None:
    svg = plot([(EVIL, 3), ("", 0)], what=EVIL)
    assert "<script" not in svg
    texts = [element.text for element in ElementTree.fromstring(svg).iter("title")]
    assert texts[0].startswith(EVIL)


@pytest.mark.parametrize("plot", [columns, ranking, funnel])
def test_nothing_is_a_plot_too(plot: type) -> None:
    assert rectangles(plot([], what="visits")) == []


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.5, 1), (1, 1), (7, 8), (11, 20), (95, 100), (401, 500), (1000, 1000)]
)
def test_a_scale_ends_at_a_round_number(value: float, top: float) -> None:
    assert nice(value) == top
