"""Samples become text that scrapers accept, whatever names and values there are."""

import math

from metrics.exposed import parse

from ottla.metrics import catalogue
from ottla.metrics.exposition import Exposition
from ottla.metrics.family import COUNTER, GAUGE, Distribution, Family, Sample


def text(*samples: Sample, openly: bool = False) -> str:
    page = Exposition()
    for sample in samples:
        page.add(sample)
    return "".join(page.text(openly=openly))


def test_labels_are_escaped() -> None:
    nasty = 'a"b\\c\nd{}=,'
    exposed = parse(text(Sample(catalogue.GROUP_MEMBERS, (nasty,), 3)))
    assert exposed.value("ottla_group_members", group=nasty) == 3


def test_families_stand_together_in_the_order_of_the_catalogue() -> None:
    found = text(
        Sample(catalogue.BYTES_IN, (), 1),
        Sample(catalogue.TOPIC_BYTES_IN, ("b",), 2),
        Sample(catalogue.MESSAGES_IN, (), 3),
        Sample(catalogue.TOPIC_BYTES_IN, ("a",), 4),
    )
    names = [line.split("{")[0].split(" ")[0] for line in found.splitlines() if not line.startswith("#")]
    assert names == ["ottla_messages_in_total", "ottla_bytes_in_total", *["ottla_topic_bytes_in_total"] * 2]


def test_a_histogram_is_cumulative() -> None:
    lag = Distribution((0.1, 1.0), [2, 1, 4], 9.5)
    exposed = parse(text(Sample(catalogue.LOOP_LAG, (), lag)))
    buckets = [exposed.value("ottla_loop_lag_seconds_bucket", le=bound) for bound in ("0.1", "1.0", "+Inf")]
    assert buckets == [2, 3, 7]
    assert exposed.value("ottla_loop_lag_seconds_count") == 7
    assert exposed.value("ottla_loop_lag_seconds_sum") == 9.5


def test_open_metrics_name_counters_without_their_suffix_and_have_an_end() -> None:
    found = text(Sample(catalogue.BYTES_IN, (), 1), openly=True)
    assert "# TYPE ottla_bytes_in counter\n" in found
    assert "\nottla_bytes_in_total 1\n" in found
    assert found.endswith("# EOF\n")


def test_numbers_that_are_none_have_their_names() -> None:
    family = Family("client_x", GAUGE, "", ("a",))
    found = text(*(Sample(family, (str(at),), one) for at, one in enumerate((math.nan, math.inf, -math.inf))))
    assert [line.split(" ")[1] for line in found.splitlines()[2:]] == ["NaN", "+Inf", "-Inf"]


def test_what_clients_call_by_one_name_is_one_family() -> None:
    gauge = Family("client_x", GAUGE, "", ("a",))
    other = Family("client_x", GAUGE, "", ("b",))
    counter = Family("client_x_total", COUNTER, "", ("a",))
    found = text(Sample(gauge, ("1",), 1), Sample(counter, ("1",), 2), Sample(other, ("1",), 3))
    assert parse(found).total("client_x") == 4
    assert "client_x_total" not in found, "in OpenMetrics both would be called client_x"


def test_names_are_those_of_prometheus_and_none_is_used_twice() -> None:
    names = [family.name for family in catalogue.FAMILIES]
    assert len(set(names)) == len(names)
    for family in catalogue.FAMILIES:
        assert (family.kind == COUNTER) == family.name.endswith("_total"), family.name
        assert family.meaning.endswith("."), family.name
