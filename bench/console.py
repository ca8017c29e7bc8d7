"""How the console scales: 5,000 topics and 1,000 groups on one broker, every page in a browser.

    .venv/bin/python bench/console.py [--topics 5000] [--groups 1000] [--seconds 30]

Prints how long a snapshot of the cluster takes, RSS and CPU of the console while one page is open, and for each page
the time from the request to useful content, median of three. Needs Chromium.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

# In the place of this folder, in which `console` is this file.
sys.path.pop(0)
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from console.desk import Desk, Visitor, open_browser
from playwright.sync_api import sync_playwright

from ottla.client.cluster import Cluster, TopicPartition
from ottla.client.groups import Committed, commit
from ottla.client.security import PLAIN
from ottla.console.watch.gathering import Gathering
from ottla.embed import BrokerProcess
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

AT_ONCE = 500
PARTITIONS = 3
PAGES = {
    "overview": ("/", "All is well|What needs attention"),
    "brokers": ("/brokers", "answers"),
    "topics": ("/topics", "topic-0000"),
    "topic": ("/topics/topic-00042", "in sync"),
    "messages": ("/messages?topic=topic-00042", "records found"),
    "groups": ("/groups", "group-"),
    "group": ("/groups/group-0042", "Partitions"),
    "reassignment": ("/reassignment", "Preferred leaders"),
    "queries": ("/queries", "the busiest"),
    "transactions": ("/transactions", "No transaction"),
    "audit": ("/audit", "Nothing was changed"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=5000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(data=Path(folder) / "broker") as broker:
        fill(broker.bootstrap, options.topics, options.groups)
        rounds(broker.bootstrap)
        with Desk(broker.bootstrap, Path(folder)) as desk, sync_playwright() as driver:
            browser = open_browser(driver)
            visitor = Visitor(browser.new_page(viewport={"width": 1360, "height": 860}), desk.url)
            visitor.go("/topics", until="topic-0000")
            for name, (path, text) in PAGES.items():
                times = [opened(visitor, path, text) for _ in range(3)]
                print(f"{name:14} {1000 * statistics.median(times):6.0f} ms to useful content")
            visitor.go("/topics", until="topic-0000")
            busy(desk.pid, options.seconds)
            browser.close()
    return 0


def fill(bootstrap: str, topics: int, groups: int) -> None:
    began = time.monotonic()
    with Cluster(bootstrap, timeout_s=120) as cluster:
        for first in range(0, topics, AT_ONCE):
            wanted = [
                CreatableTopic(
                    name=f"topic-{number:05}",
                    num_partitions=PARTITIONS,
                    replication_factor=1,
                    assignments=[],
                    configs=[],
                )
                for number in range(first, min(first + AT_ONCE, topics))
            ]
            request = CreateTopicsRequest(topics=wanted, timeout_ms=120_000)
            cluster.controller().ask(request, CreateTopicsResponse)
        for number in range(groups):
            where = [TopicPartition(f"topic-{number % topics:05}", index) for index in range(PARTITIONS)]
            commit(cluster, f"group-{number:04}", dict.fromkeys(where, Committed(0)))
    print(f"{topics:,} topics of {PARTITIONS} partitions, {groups:,} groups, made in {time.monotonic() - began:.0f} s")


def rounds(bootstrap: str) -> None:
    gathering = Gathering(bootstrap, PLAIN)
    walls, cpus = [], []
    while len(walls) < 6:
        cpu = time.process_time()
        if gathering.round().problem:
            time.sleep(1)
            continue
        walls.append(gathering.snapshot.took_s)
        cpus.append(time.process_time() - cpu)
    gathering.close()
    print(f"a look at it: first {walls[0]:.2f} s, then {statistics.median(walls[1:]):.2f} s "
          f"({statistics.median(cpus[1:]):.2f} s CPU); asked every {gathering.snapshot.every_s:.1f} s")  # fmt: skip


def opened(visitor: Visitor, path: str, text: str) -> float:
    began = time.monotonic()
    visitor.page.goto(visitor.url + path, wait_until="commit")
    visitor.page.wait_for_function(
        "wanted => wanted.split('|').some(one => document.body && document.body.innerText.includes(one))", arg=text
    )
    return time.monotonic() - began


def busy(pid: int, seconds: float) -> None:
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    share = (cpu_s(pid) - before) / (time.monotonic() - began)
    rss = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    print(f"the console: {int(rss.split()[1]) // 1024} MiB RSS, {100 * share:.0f} % of a core with one page open")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
