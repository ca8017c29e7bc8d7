"""The console of one broker without access control, as most people first see it, and of a broker that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from console.desk import Desk, Visitor, open_browser
from playwright.sync_api import sync_playwright

from ottla.client.cluster import Cluster
from ottla.console.watch.graph import GROUP, TOPIC, Edge
from ottla.console.web.pages.queries import PHONE, graph
from ottla.embed import BrokerThread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("console")

LONG = "a-long-name.with.many.parts.europe-west.customer-profile-changes." + "x" * 30


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as running:
        yield running


@pytest.fixture
def visitor(broker: BrokerThread, tmp_path: Path) -> Iterator[Visitor]:
    with (
        Desk(broker.bootstrap, tmp_path, "--allow-changes") as desk,
        sync_playwright() as driver,
        open_browser(driver) as browser,
    ):
        found = Visitor(browser.new_page(viewport={"width": 1360, "height": 860}), desk.url)
        yield found
        assert not found.errors, found.errors
        assert "Traceback" not in desk.log, desk.log


def test_one_broker_as_it_is_first_seen(visitor: Visitor, broker: BrokerThread) -> None:
    with Cluster(broker.bootstrap) as client:
        client.create(LONG, 1)
    visitor.go("/topics", until=LONG)
    # A long name does not push the last columns out of sight.
    assert visitor.page.locator(".q-table__middle").first.evaluate("one => one.scrollWidth - one.clientWidth") == 0
    visitor.page.get_by_text("Create topic").first.click()
    label = visitor.page.locator(".q-dialog .q-field__label", has_text="Replicas")
    label.wait_for()
    assert label.evaluate("one => one.scrollWidth <= one.clientWidth"), "the label is cut off"
    visitor.page.keyboard.press("Escape")
    visitor.go("/access", until="the brokers have no authorizer")
    assert visitor.page.get_by_text("could not be read").count() == 0
    visitor.go(f"/topics/{LONG}", until="1 replica each")


def test_what_cannot_be_read_is_not_called_empty(visitor: Visitor, broker: BrokerThread) -> None:
    visitor.go("/brokers/1", until="auto.create.topics.enable")
    broker.kill()
    visitor.go("/brokers/1", until="The options could not be read")
    visitor.sees("Not known.", "options")
    visitor.go("/", until="0 of 1")
    visitor.sees("Check that a broker runs there", "attention")
    visitor.go("/topics", until="The cluster does not answer")
    visitor.page.get_by_text("Create topic").first.click()
    visitor.write("topic-name", "never")
    visitor.press("topic-create")
    button = visitor.page.locator(".q-notification .q-btn")
    button.wait_for()
    assert button.evaluate("one => getComputedStyle(one).color") == "rgb(255, 255, 255)", "readable on red"


def test_a_console_that_waits_for_its_cluster(tmp_path: Path) -> None:
    with (
        Desk("127.0.0.1:1", tmp_path) as desk,
        sync_playwright() as driver,
        open_browser(driver) as browser,
    ):
        visitor = Visitor(browser.new_page(viewport={"width": 1360, "height": 860}), desk.url)
        visitor.go("/", until="Check that a broker runs there")
        assert visitor.reads("age") == "no answer yet"
        for never in ("There is no controller", "all answer", "0 of 0"):
            assert visitor.page.get_by_text(never).count() == 0
        assert not visitor.errors, visitor.errors


def test_names_in_the_graph_have_an_end_on_a_phone() -> None:
    options, _ = graph([Edge((TOPIC, LONG), (GROUP, LONG), 1.0, 1)])
    (media,) = options["media"]
    assert media["query"] == {"maxWidth": PHONE}
    label = media["option"]["series"][0]["label"]
    assert label["overflow"] == "truncate"
    assert label["width"] <= 0.22 * 350 - 8, "what is left beside the columns"
