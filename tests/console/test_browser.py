"""Every page and every action of the console in a real browser, against three brokers under load."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource
from console import acting
from console.desk import Desk, Visitor, open_browser
from console.load import Load
from playwright.sync_api import ViewportSize, sync_playwright
from waiting import wait_until

from ottla.client.acls import list_rules
from ottla.client.cluster import Cluster as Client
from ottla.client.quotas import Quota, list_quotas
from ottla.client.reassignment import ongoing, start
from ottla.client.security import PLAIN
from ottla.client.users import list_users
from ottla.console.actions import EVERY_RULE
from ottla.console.watch.gathering import Gathering
from ottla.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext

    from ottla.console.watch.snapshot import Snapshot

pytestmark = pytest.mark.xdist_group("console")

PAGES = {
    "overview": ("/", "What needs attention"),
    "brokers": ("/brokers", "Leader partitions"),
    "broker": ("/brokers/1", "auto.create.topics.enable"),
    "topics": ("/topics", "orders"),
    "topic": ("/topics/orders", "in sync"),
    "messages": ("/messages?topic=orders", "records found"),
    "groups": ("/groups", "shipping"),
    "group": ("/groups/shipping", "Lag in seconds"),
    "reassignment": ("/reassignment", "Preferred leaders"),
    "queries": ("/queries", "Who reads what"),
    "transactions": ("/transactions", "till-1"),
    "access": ("/access", "User:ann"),
    "zookeeper": ("/zookeeper", "controller_epoch"),
    "audit": ("/audit", "create topic"),
}
WIDE: ViewportSize = {"width": 1360, "height": 860}
PHONE: ViewportSize = {"width": 390, "height": 780}
COLUMN_MIN = 25  # pixels: no column is narrower, so less is not worth a thought
SCRIPT = (
    "<img src=x onerror=\"window.hurt=1\"><script>window.hurt=1</script>{{constructor.constructor('window.hurt=1')()}}"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # A throttle holds on average over a window of samples: a short window shows it with little data.
    options = {
        "group.initial.rebalance.delay.ms": 0,
        "replication.quota.window.num": 3,
        "auto.leader.rebalance.enable": "false",  # leaders are elected from the page
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Cluster(3, options=options) as running:
        with Client(running.bootstrap) as client:
            for name, partitions in (("orders", 6), ("payments", 3), ("moved", 3), ("hostile", 1)):
                client.create(name, partitions, replicas=3 if name != "moved" else 1)
        yield running


@pytest.fixture(scope="module")
def load(cluster: Cluster) -> Iterator[Load]:
    running = Load(cluster.bootstrap)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def desk(cluster: Cluster, load: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("console")
    with Desk(cluster.bootstrap, folder, "--allow-changes", "--zookeeper", cluster.zookeeper.address) as running:
        yield running
        assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        opened = open_browser(driver)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[BrowserContext]:
    """Shared by most tests: loading a page again costs the browser little."""
    opened = browser.new_context(viewport=WIDE)
    yield opened
    opened.close()


@pytest.fixture
def visitor(window: BrowserContext, desk: Desk) -> Iterator[Visitor]:
    found = Visitor(window.new_page(), desk.url)
    yield found
    found.page.close()
    assert not found.errors, found.errors
    outside = [url for url in found.requests if urlsplit(url).netloc not in (urlsplit(desk.url).netloc, "")]
    assert not outside, f"the page asked somebody else: {outside}"


def test_a_topic_is_created_changed_grown_and_deleted(visitor: Visitor, cluster: Cluster) -> None:
    visitor.go("/topics", until="orders")
    acting.create_topic(visitor, "invoices", 2)
    visitor.sees("2, ", "partitions")
    visitor.page.get_by_role("tab", name="Options").click()
    acting.set_option(visitor, "retention.ms", "3600000")
    with Client(cluster.bootstrap) as client:
        assert client.configs("invoices")["retention.ms"] == "3600000"
    visitor.press("grow")
    visitor.write("grow-count", "5")
    visitor.press("grow-do")
    with Client(cluster.bootstrap) as client:
        wait_until(lambda: client.topics(["invoices"])["invoices"].partitions == 5)
    acting.delete_topic(visitor, "invoices")
    with Client(cluster.bootstrap) as client:
        wait_until(lambda: "invoices" not in client.topics())
    visitor.page.wait_for_url("**/topics")  # where the page goes by itself
    visitor.go("/audit", until="delete topic")
    for what in ("create topic", "set option", "add partitions"):
        visitor.sees(what, "audit")


def test_rules_are_added_and_removed(visitor: Visitor, cluster: Cluster) -> None:
    def list_principals() -> set[str | None]:
        with Client(cluster.bootstrap) as client:
            return {rule.principal for rule in list_rules(client, EVERY_RULE)}

    visitor.go("/access", until="Add rule")
    for name, topic in (("ann", "orders"), ("bob", "pay")):
        visitor.press("rule-add")
        visitor.write("rule-who", name)
        visitor.write("rule-name", topic)
        if name == "bob":
            visitor.choose("rule-may", "may not")
            visitor.choose("rule-operation", "delete")
            visitor.press("rule-prefixed")
        visitor.press("rule-save")
        visitor.sees(f"User:{name}", "rules")
        visitor.page.locator(".q-dialog").wait_for(state="detached")
    wait_until(lambda: list_principals() == {"User:ann", "User:bob"})
    visitor.find("rules").get_by_text("User:bob").click()
    visitor.sees("User:bob may not delete topic names that begin with pay")
    visitor.press("sure")
    wait_until(lambda: list_principals() == {"User:ann"})
    visitor.find("rules").get_by_text("User:bob").wait_for(state="detached")
    visitor.go("/audit", until="remove rule")


def test_users_are_added_changed_and_removed(visitor: Visitor, desk: Desk, cluster: Cluster) -> None:
    def listed() -> dict[str, dict[str, int]]:
        with Client(cluster.bootstrap) as client:
            return list_users(client)

    secret = "between you and me"
    visitor.go("/access", until="Add rule")
    visitor.page.get_by_role("tab", name="Users").click()
    visitor.press("user-add")
    visitor.write("user-name", "carol")
    visitor.write("user-password", secret)
    visitor.press("user-save")
    visitor.sees("carol", "users")
    assert set(listed()["carol"]) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    visitor.page.locator(".q-dialog").wait_for(state="detached")
    visitor.find("users").get_by_text("carol").click()
    visitor.press("user-remove")
    visitor.press("sure")
    visitor.sees("No user has a password here.", "users")
    assert not listed()
    visitor.go("/audit", until="remove user")
    visitor.sees("carol (SCRAM-SHA-256, SCRAM-SHA-512)", "audit")
    assert secret not in visitor.page.content()
    assert secret not in desk.log


def test_quotas_are_set_changed_and_removed(visitor: Visitor, cluster: Cluster) -> None:
    def listed() -> list[Quota]:
        with Client(cluster.bootstrap) as client:
            return list_quotas(client)

    visitor.go("/access", until="Add rule")
    visitor.page.get_by_role("tab", name="Quotas").click()
    visitor.press("quota-add")
    visitor.write("quota-user", "dora")
    visitor.write("quota-value", "10MB")
    visitor.press("quota-save")
    visitor.sees("user dora", "quotas")
    wait_until(lambda: listed() == [Quota({"user": "dora"}, {"producer_byte_rate": 10_000_000.0})], listed)
    visitor.page.locator(".q-dialog").wait_for(state="detached")
    visitor.find("quotas").get_by_text("user dora").click()
    visitor.write("quota-value", "twenty")
    visitor.press("quota-save")
    visitor.sees("expected a size such as 10MB")
    visitor.page.locator(".q-dialog").wait_for(state="detached")
    visitor.find("quotas").get_by_text("user dora").click()
    visitor.press("quota-remove")
    visitor.sees("No quotas: nobody is limited.", "quotas")
    assert not listed()
    visitor.go("/audit", until="remove quota")


def test_what_the_cluster_refuses_is_told_and_stands_in_the_audit_list(visitor: Visitor) -> None:
    visitor.go("/topics", until="orders")
    acting.create_topic(visitor, "no such name!", 1)
    visitor.sees("INVALID_TOPIC_EXCEPTION")
    visitor.go("/audit", until="no such name!")


def test_messages_are_found_filtered_and_written(visitor: Visitor) -> None:
    visitor.go("/messages?topic=orders", until="records found")
    visitor.write("filter", 'value.customer.name = "Ada" and value.total >= 50 and header.source = "web"')
    visitor.press("read")

    def totals() -> list[float]:
        rows = visitor.page.locator("[data-mark=messages] tbody tr").all_inner_texts()
        found = [row.partition("{")[2].partition(', "customer"')[0] for row in rows]
        return [json.loads(f"{{{one}}}")["total"] for one in found if one]

    # The table shows all records until the filtered ones arrive.
    wait_until(lambda: visitor.page.wait_for_timeout(200) or (totals() and min(totals()) >= 50))
    visitor.write("filter", "value.total >>> 5 or import os")
    visitor.press("read")
    visitor.sees("is compared with")
    visitor.write("filter", "")
    visitor.press("produce")
    visitor.write("produce-topic", "hostile")
    visitor.write("produce-key", SCRIPT)
    visitor.write("produce-value", json.dumps({"said": SCRIPT}))
    visitor.press("produce-do")
    visitor.sees("Written to hostile")
    visitor.go("/messages?topic=hostile", until="1 records found")
    visitor.sees("onerror", "messages")
    visitor.page.locator("[data-mark=messages] tbody td").first.click()
    visitor.sees("onerror", "message-value")
    visitor.page.keyboard.press("Escape")
    visitor.find("message-value").wait_for(state="detached")
    visitor.choose("kind", "Hex")
    visitor.sees("3c 69 6d 67", "messages")
    assert visitor.page.evaluate("window.hurt === undefined"), "what is in a record was run"


def test_messages_are_followed_live(visitor: Visitor) -> None:
    visitor.go("/messages", until="Choose a topic")
    visitor.write("messages-topic", "orders")
    visitor.press("tail")
    wait_until(lambda: visitor.page.wait_for_timeout(200) or "Live:" in visitor.reads("messages-status"))
    before = visitor.page.locator("[data-mark=messages] tbody tr").first.inner_text()
    wait_until(lambda: visitor.page.wait_for_timeout(200)
               or visitor.page.locator("[data-mark=messages] tbody tr").first.inner_text() != before)  # fmt: skip


def test_offsets_are_reset_with_a_preview(visitor: Visitor, cluster: Cluster) -> None:
    acting.commit(cluster.bootstrap, "reports", "orders", dict.fromkeys(range(6), 7))
    acting.open_group(visitor, "reports")
    acting.reset_offsets(visitor, "reports", "An offset", "3", preview="-4")
    assert acting.committed(cluster.bootstrap, "reports", "orders", 6) == [3] * 6


def test_a_group_is_deleted(visitor: Visitor, cluster: Cluster) -> None:
    acting.commit(cluster.bootstrap, "retired", "orders", {0: 1})
    acting.open_group(visitor, "retired")
    visitor.press("group-delete")
    visitor.write("confirm", "retired")
    visitor.press("sure")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wait_until(lambda: "retired" not in {one.group_id for one in admin.list_consumer_groups().result(60).valid})
    visitor.page.wait_for_url("**/groups")
    assert acting.committed(cluster.bootstrap, "retired", "orders", 1) == [OFFSET_INVALID]


def test_an_option_of_a_broker_is_changed_while_it_runs(visitor: Visitor, cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def held() -> tuple[str, int]:
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        entry = admin.describe_configs([resource])[resource].result(60)["message.max.bytes"]
        return entry.value, entry.source

    before = held()
    visitor.go("/brokers/1", until="auto.create.topics.enable")
    acting.set_option(visitor, "message.max.bytes", "2000000")
    wait_until(lambda: held() == ("2000000", ConfigSource.DYNAMIC_BROKER_CONFIG.value), held)
    visitor.sees("this broker, live", "options")
    visitor.find("options").get_by_text("message.max.bytes", exact=True).click()
    visitor.press("option-default")
    wait_until(lambda: held() == before, held)


def test_an_open_transaction_is_shown_and_aborted(visitor: Visitor) -> None:
    visitor.go("/transactions", until="till-1")
    visitor.sees("Ongoing", "transactions")
    visitor.shoot("transactions-open")
    visitor.page.locator("[data-mark=transactions] td", has_text="till-1").first.click()
    visitor.press("sure")
    visitor.sees("The transaction of till-1 is aborted")


def test_znodes_are_shown(visitor: Visitor) -> None:
    visitor.go("/zookeeper", until="controller_epoch")
    visitor.page.locator("[data-mark=znodes]").get_by_text("controller", exact=True).click()
    visitor.sees('"brokerid"', "znode-data")


def test_a_reassignment_from_the_page_loses_nothing_and_obeys_its_throttle(
    visitor: Visitor, cluster: Cluster, load: Load
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for _ in range(300):
        producer.produce("moved", b"x" * 4096, partition=0)
    producer.flush(60)
    visitor.go("/reassignment", until="Propose")
    acting.propose(visitor, "Change the replication factor", "moved", copies=3)
    visitor.sees("3 partitions change", "plan-said")
    visitor.shoot("reassignment-plan")
    acting.run_plan(visitor, "0.2")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    began = time.monotonic()
    visitor.sees("partitions,", "moves-total")
    visitor.shoot("reassignment-running")
    wait_until(
        lambda: all(
            len(part.isrs) == 3 for part in admin.list_topics("moved", timeout=60).topics["moved"].partitions.values()
        )
    )
    # The first fetch copies a megabyte, five seconds' share: the second waits until the window has passed.
    assert time.monotonic() - began > 2
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "counting", "auto.offset.reset": "earliest"}
    visitor.go("/audit")
    wait_until(lambda: visitor.page.wait_for_timeout(500) or "remove throttle" in visitor.reads("audit"))
    with Client(cluster.bootstrap) as client:
        assert (
            "leader.replication.throttled.replicas" not in client.configs("moved")
            or not client.configs("moved")["leader.replication.throttled.replicas"]
        )
    wanted = load.counts.get("moved", 0) + 300
    consumer = Consumer({**options, "enable.auto.commit": False})
    ends = sum(consumer.get_watermark_offsets(TopicPartition("moved", index), timeout=60)[1] for index in range(3))
    consumer.close()
    assert ends >= wanted, "acknowledged records are missing"


def test_moves_are_cancelled_and_a_broker_is_drained(visitor: Visitor, cluster: Cluster) -> None:
    """Held back to 10 kB a second, a move of four megabytes is under way until it is cancelled."""
    with Client(cluster.bootstrap) as client:
        client.create("heavy", 1, replicas=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for _ in range(1000):
        producer.produce("heavy", b"x" * 4096, partition=0)
    producer.flush(60)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def replicas() -> list[int]:
        return admin.list_topics("heavy", timeout=60).topics["heavy"].partitions[0].replicas

    (node,) = before = replicas()
    visitor.go("/reassignment", until="Propose")
    acting.propose(visitor, "Change the replication factor", "heavy", copies=3)
    acting.run_plan(visitor, "0.01")
    visitor.sees("1 partitions,", "moves-total")
    visitor.press("moves-cancel")
    visitor.press("sure")
    visitor.sees("The moves are cancelled")
    with Client(cluster.bootstrap) as client:
        wait_until(lambda: not ongoing(client))
        assert replicas() == before
        wait_until(lambda: not client.configs("heavy").get("leader.replication.throttled.replicas"))
    acting.propose(visitor, "Drain a broker", "heavy", leaving=node)
    visitor.sees("1 partitions change", "plan-said")
    acting.run_plan(visitor, "50")
    wait_until(lambda: len(replicas()) == 1 and node not in replicas(), replicas)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "counting"})
    assert consumer.get_watermark_offsets(TopicPartition("heavy", 0), timeout=60) == (0, 1000)
    consumer.close()


def test_preferred_leaders_are_elected_one_and_all(visitor: Visitor, cluster: Cluster) -> None:
    """Another order of the replicas makes another one preferred; who leads stays until there is an election."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def leaders() -> dict[int, int]:
        parts = admin.list_topics("payments", timeout=60).topics["payments"].partitions
        return {index: parts[index].leader for index in range(2)}

    before = leaders()
    parts = admin.list_topics("payments", timeout=60).topics["payments"].partitions
    order = {index: sorted(parts[index].replicas, key=lambda node: node == before[index]) for index in before}
    with Client(cluster.bootstrap) as client:
        assert not start(client, {("payments", index): nodes for index, nodes in order.items()})
    visitor.go("/reassignment", until="Preferred leaders")
    visitor.write("elect-search", "payments")
    row = visitor.page.locator("[data-mark=elect] tbody tr", has_text="payments / 1").first
    row.locator(".q-checkbox").click()
    visitor.press("elect-chosen")
    visitor.sees("1 leaders elected")
    wait_until(lambda: leaders() == {0: before[0], 1: order[1][0]}, leaders)
    visitor.press("elect-all")
    wait_until(lambda: leaders() == {index: order[index][0] for index in order}, leaders)
    wait_until(lambda: visitor.page.wait_for_timeout(300) or "not led by" not in visitor.reads("elect-count"))


def test_light_and_dark_are_switched_and_remembered(browser: Browser, desk: Desk) -> None:
    context = browser.new_context(viewport=WIDE, color_scheme="light")
    visitor = Visitor(context.new_page(), desk.url)
    visitor.go("/", until="What needs attention")
    light = visitor.background()
    visitor.press("theme")
    wait_until(lambda: visitor.background() != light)
    dark = visitor.background()
    visitor.go("/topics", until="orders")
    assert visitor.background() == dark, "the next page has forgotten it"
    visitor.page.emulate_media(color_scheme="dark")
    visitor.press("theme")
    wait_until(lambda: visitor.background() == light, "light is chosen, whatever the system says")
    visitor.press("theme")
    wait_until(lambda: visitor.background() == dark, "as the system is")
    assert not visitor.errors, visitor.errors
    context.close()


@pytest.mark.parametrize("way", ["user", "token"])
def test_only_who_knows_the_secret_gets_in(browser: Browser, cluster: Cluster, tmp_path: Path, way: str) -> None:
    (tmp_path / "secret").write_text("open sesame")
    flags = ["--user", "ada", "--password-file"] if way == "user" else ["--token-file"]
    with ExitStack() as stack:
        desk = stack.enter_context(
            Desk(cluster.bootstrap, tmp_path, "--allow-changes", *flags, str(tmp_path / "secret"))
        )
        context = browser.new_context()
        stack.callback(context.close)
        visitor = Visitor(context.new_page(), desk.url)
        visitor.go("/topics", until="Log in")
        visitor.shoot(f"login-{way}")
        for user, secret in (("ada", "open barley"), ("eve", "open sesame")):
            if way == "token" and user == "eve":
                continue  # a token has no name
            acting.log_in(visitor, user if way == "user" else "", secret)
            visitor.sees("Wrong token, user or password.")
            visitor.go("/topics", until="Log in")
        acting.log_in(visitor, "ada" if way == "user" else "", "open sesame")
        visitor.sees("What needs attention")
        visitor.go("/topics", until="orders")
        acting.create_topic(visitor, f"made-by-{way}", 1)
        visitor.page.wait_for_url(f"**/topics/made-by-{way}")  # where the page goes by itself
        with Client(cluster.bootstrap) as client:
            assert f"made-by-{way}" in client.topics()
        visitor.go("/audit", until=f"made-by-{way}")
        assert ("ada" if way == "user" else "token") in visitor.reads("audit")


@pytest.mark.parametrize("size", ["wide", "phone"])
def test_every_page_shows_what_it_is_for(browser: Browser, desk: Desk, size: str) -> None:
    """In light and dark: a page is loaded in one of them, which differs between the sizes, then turned to the other."""
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark") if size == "wide" else ("dark", "light")
    context = browser.new_context(viewport=WIDE if size == "wide" else PHONE, color_scheme=schemes[0])
    visitor = Visitor(context.new_page(), desk.url)
    for name, (path, text) in PAGES.items():
        visitor.page.emulate_media(color_scheme=schemes[0])
        visitor.go(path)
        if name == "transactions":
            visitor.press("txn-all")
        visitor.page.get_by_text(text).first.wait_for(state="attached")
        visitor.page.wait_for_timeout(400)  # for the plots to be drawn
        before = ""
        for scheme in schemes:
            visitor.page.emulate_media(color_scheme=scheme)
            wait_until(lambda: visitor.background() != before, f"{name} does not turn {scheme}")  # noqa: B023
            before = visitor.background()
            wide = visitor.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is wider than the screen ({size})"
            cut = visitor.page.evaluate(
                "[...document.querySelectorAll('.q-table__middle')].map(one => one.scrollWidth - one.clientWidth)"
            )
            assert max(cut, default=0) < COLUMN_MIN, f"a table of {name} hides a column ({size}, {cut})"
            visitor.shoot(f"{name}-{size}-{scheme}")
    assert not visitor.errors, visitor.errors
    assert all(urlsplit(url).netloc == urlsplit(desk.url).netloc for url in visitor.requests if ":" in url)
    context.close()


def test_a_broker_that_is_killed_is_told_within_seconds_and_nothing_hangs(
    visitor: Visitor, browser: Browser, cluster: Cluster, desk: Desk
) -> None:
    """All pages are open when it is killed: each says so, and still does what one asks of it."""
    tabs = {name: Visitor(visitor.page.context.new_page(), desk.url) for name in PAGES}
    for name, tab in tabs.items():
        tab.go(PAGES[name][0])
        tab.find("theme").wait_for()
    cluster.kill(2)
    try:
        for name, tab in tabs.items():
            tab.page.get_by_text("Broker 2 does not answer").first.wait_for()
            before = tab.background()
            tab.press("theme")
            wait_until(lambda: tab.background() != before, f"{name} hangs")  # noqa: B023
            assert not tab.errors, (name, tab.errors)
            if name in ("overview", "topics"):
                tab.shoot(f"{name}-broker-killed")
        for tab in tabs.values():
            tab.page.close()
        for path, text in PAGES.values():
            if path.startswith("/transactions"):
                continue
            visitor.go(path)
            visitor.page.get_by_text(text).first.wait_for(state="attached")
    finally:
        cluster.start(2)
    visitor.go("/")
    wait_until(lambda: visitor.page.wait_for_timeout(300) or "3 of 3" in visitor.page.inner_text("body"))


def test_a_broker_that_hangs_hangs_no_page(visitor: Visitor, cluster: Cluster) -> None:
    visitor.go("/", until="What needs attention")
    cluster.pause(3)
    try:
        visitor.page.get_by_text("Broker 3 does not answer").first.wait_for()
        visitor.go("/topics", until="orders")
        visitor.sees("Broker 3 does not answer", "banner")
        visitor.go("/brokers/3", until="Leader partitions")
    finally:
        cluster.resume(3)
    visitor.go("/")
    wait_until(lambda: visitor.page.wait_for_timeout(300) or "3 of 3" in visitor.page.inner_text("body"))


def test_lag_in_seconds_is_right_within_a_second_of_the_truth(cluster: Cluster) -> None:
    """By samples of the ends, and by looking at the record, as a console does that was started later."""
    with Client(cluster.bootstrap) as client:
        client.create("timed", 1, configs={"message.timestamp.type": "LogAppendTime"})
    stamps: list[int] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0})
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "timers", "enable.auto.commit": False}
    consumer = Consumer(options)
    consumer.commit(offsets=[TopicPartition("timed", 0, 0)], asynchronous=False)
    watching, late = Gathering(cluster.bootstrap, PLAIN), Gathering(cluster.bootstrap, PLAIN)
    wait_until(lambda: "timers" in watching.round().groups)
    for _ in range(12):
        for _ in range(4):
            producer.produce("timed", b"tick", on_delivery=lambda error, message: stamps.append(message.timestamp()[1]))
            producer.flush(60)
            time.sleep(0.05)
        watching.round()
    for offset in (1, 20, 44):
        consumer.commit(offsets=[TopicPartition("timed", 0, offset)], asynchronous=False)
        for gathering in (watching, late):
            wait_until(lambda: seconds_behind(gathering.round(), offset) is not None)  # noqa: B023
            snapshot = gathering.round()
            truth = (snapshot.at_ms - stamps[offset]) / 1000
            found = seconds_behind(snapshot, offset)
            assert found is not None
            assert abs(found - truth) < 1, (offset, found, truth)
    consumer.close()
    for gathering in (watching, late):
        gathering.close()


def seconds_behind(snapshot: Snapshot, committed: int) -> float | None:
    group = snapshot.groups.get("timers")
    lags = [one for one in group.lags if one.committed == committed] if group else []
    return lags[0].seconds if lags else None
