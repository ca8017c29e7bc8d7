"""The pictures: every value is where the axes say, and both lines can be told apart on light and dark pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench import plot
from bench.turns import Spread

SVG = "{http://www.w3.org/2000/svg}"
NAMES = {"kafka": "Apache Kafka", "ottla": "Ottla"}


def flat(value: float) -> plot.Line:
    return [(size, Spread(value * 0.9, value, value * 1.1)) for size in (1, 10, 100)]


def drawn(*panels: plot.Panel) -> ElementTree.Element:
    return ElementTree.fromstring(plot.draw("Cost & growth", "things", panels, NAMES))


def heights(picture: ElementTree.Element, style: str) -> list[float]:
    line = next(line for line in picture.iter(f"{SVG}polyline") if style in line.attrib["class"])
    return [float(point.split(",")[1]) for point in line.attrib["points"].split()]


def test_a_flat_line_is_drawn_flat_and_the_dearer_one_above() -> None:
    picture = drawn(plot.Panel("produce", {"kafka": flat(40.0), "ottla": flat(20.0)}))
    kafka, ottla = heights(picture, "kafka"), heights(picture, "ottla")
    assert len(set(kafka)) == len(set(ottla)) == 1
    assert kafka[0] < ottla[0]  # y grows downwards


def test_equal_factors_are_equal_distances() -> None:
    line: plot.Line = [(size, Spread(value, value, value)) for size, value in ((1, 2.0), (10, 20.0), (100, 200.0))]
    picture = drawn(plot.Panel("produce", {"ottla": line}))
    first, second, third = heights(picture, "ottla")
    assert first - second == pytest.approx(second - third, abs=0.2)
    assert first - second > 10


def test_a_bar_reaches_from_quartile_to_quartile() -> None:
    line: plot.Line = [(1, Spread(10.0, 20.0, 40.0)), (2, Spread(20.0, 20.0, 20.0))]
    picture = drawn(plot.Panel("produce", {"ottla": line}))
    bars = [path.attrib["d"] for path in picture.iter(f"{SVG}path") if path.attrib["class"] == "bar ottla"]
    ends = [[float(end) for end in re.findall(r"[ V]([\d.]+)", bar)] for bar in bars]
    middle = heights(picture, "ottla")[0]
    assert ends[0][0] - middle == pytest.approx(middle - ends[0][1], abs=0.2)
    assert ends[0][0] > middle > ends[0][1]
    assert ends[1][0] == ends[1][1] == middle


def test_ticks_stand_at_their_values() -> None:
    picture = drawn(plot.Panel("produce", {"ottla": [(1, Spread(20.0, 20.0, 20.0)), (10, Spread(20.0, 20.0, 20.0))]}))
    ticks = {text.text: float(text.attrib["y"]) for text in picture.iter(f"{SVG}text") if "text-anchor" in text.attrib}
    assert ticks["20"] - 4 == pytest.approx(heights(picture, "ottla")[0], abs=0.1)


def test_every_panel_and_name_is_there_and_escaped() -> None:
    panels = [plot.Panel(f"a < {number}", {"ottla": flat(1.0)}) for number in range(4)]
    picture = drawn(*panels)
    words = {text.text for text in picture.iter(f"{SVG}text")}
    assert {"Apache Kafka", "Ottla", "things", *(f"a < {number}" for number in range(4))} <= words
    assert picture.find(f"{SVG}title") is not None
    assert len(list(picture.iter(f"{SVG}polyline"))) == 4


def test_nothing_is_drawn_outside_the_page() -> None:
    line: plot.Line = [(1, Spread(0.0, 0.0, 0.001)), (50_000, Spread(100.0, 5000.0, 9000.0))]
    picture = drawn(plot.Panel("rest", {"ottla": line, "kafka": flat(3.0)}))
    for style in ("ottla", "kafka"):
        assert all(plot.TOP <= height <= plot.HEIGHT - plot.BOTTOM for height in heights(picture, style))


def test_dark_pages_have_colours_of_their_own() -> None:
    assert "prefers-color-scheme: dark" in plot.draw("any", "things", [plot.Panel("a", {"ottla": flat(1.0)})], NAMES)
