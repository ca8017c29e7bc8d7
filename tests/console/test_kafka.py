"""The console against Apache Kafka: what the protocol allows works there, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import judge
import pytest
from console import acting
from console.desk import Desk, Visitor, open_browser
from playwright.sync_api import sync_playwright
from waiting import wait_until

from ottla.client.cluster import Cluster as Client

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("console")


def test_pages_and_actions_work_on_apache_kafka(tmp_path: Path) -> None:
    with (
        judge.Kafka() as kafka,
        Desk(kafka.bootstrap, tmp_path, "--allow-changes") as desk,
        sync_playwright() as driver,
    ):
        browser = open_browser(driver)
        visitor = Visitor(browser.new_page(viewport={"width": 1360, "height": 860}), desk.url)
        visitor.go("/topics", until="Create topic")
        acting.create_topic(visitor, "orders", 3)
        visitor.sees("in sync", "partitions")
        visitor.page.get_by_role("tab", name="Options").click()
        acting.set_option(visitor, "retention.ms", "3600000")
        visitor.go("/messages?topic=orders", until="0 records found")
        visitor.press("produce")
        visitor.write("produce-key", "k")
        visitor.write("produce-value", '{"id": 5}')
        visitor.press("produce-do")
        visitor.sees("Written to orders")
        visitor.write("filter", "value.id = 5")
        visitor.press("read")
        visitor.sees("1 records found", "messages-status")
        acting.commit(kafka.bootstrap, "reports", "orders", dict.fromkeys(range(3), 0))
        acting.open_group(visitor, "reports")
        acting.reset_offsets(visitor, "reports", "The end", preview="+1")
        assert sum(acting.committed(kafka.bootstrap, "reports", "orders", 3)) == 1
        visitor.go("/brokers/1", until="auto.create.topics.enable")
        visitor.go("/reassignment", until="Preferred leaders")
        visitor.press("elect-all")
        visitor.sees("Nothing to elect")
        visitor.press("plan-propose")
        visitor.sees("Nothing to do", "plan-said")
        visitor.go("/transactions", until="No transaction is open")
        visitor.go("/queries", until="Who reads what")
        visitor.go("/", until="All is well")
        visitor.shoot("overview-apache-kafka")
        visitor.go("/topics/orders", until="in sync")
        acting.delete_topic(visitor, "orders")
        with Client(kafka.bootstrap) as client:
            wait_until(lambda: "orders" not in client.topics())
        assert not visitor.errors, visitor.errors
        browser.close()
        assert "Traceback" not in desk.log, desk.log
