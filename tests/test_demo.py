"""`make run` prints correct numbers, and ends."""

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

SECONDS = "30"
# What other tests set so that Spark starts faster (spark/jvm.py). The demo starts as for a user.
FASTER = {"SPARK_DIST_CLASSPATH", "PYTHONPATH"}
ENDS_WITHIN_S = 500  # a busy machine takes minutes to start Spark and to let the groups catch up


def test_the_demo_shows_three_groups_on_one_topic_and_counts_what_came_out(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.demo"],
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
        cwd=tmp_path,
        env={**{name: value for name, value in os.environ.items() if name not in FASTER}, "DEMO_SECONDS": SECONDS},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tables, summary = done.stdout.split("the visitors leave")
    assert re.search(r"west +activity +4 ", tables)
    assert "every group has read all of the topic" in summary
    groups = "activity-live|activity-report|ottla-mirrored-mirror"
    lags = dict(re.findall(rf"west +({groups}) +activity +[\d,]+ +([\d,]+)", summary))
    assert lags == dict.fromkeys(groups.split("|"), "0"), "they have caught up"
    events = int(re.search(r"([\d,]+) events of visitors", summary)[1].replace(",", ""))  # type: ignore[index]
    assert events > 0
    counts = re.search(r"([\d,]+) sessions that ended and ([\d,]+) counts", summary)
    assert counts is not None
    assert int(counts[1].replace(",", "")) > 0
    assert "is the same, key by key, in order" in summary
    assert "<svg" in (tmp_path / "ottla-demo" / "index.html").read_text()


def test_the_table_explains_what_it_counts() -> None:
    from rich.console import Console

    from ottla.demo.table import draw
    from ottla.demo.watch import DemoView, GroupView, TopicView

    view = DemoView(
        [TopicView("west.activity", 4, 1372, 0.0)], [GroupView("readers", ("west.activity",), 1000, 372, 0.0)]
    )
    output = StringIO()
    Console(width=100, file=output).print(draw({"east": view}))
    shown = " ".join(output.getvalue().split())
    assert "readers west.activity 1,000 372" in shown
    assert "Each transaction ends with a marker" in shown
