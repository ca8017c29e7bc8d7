"""The pipeline that `ottla pipeline new NAME` writes, and its test. Both run as they are, as a starting point.

It reads orders from a topic, sums them by minute and article, and writes the sums to another topic: a source, a schema,
event time with a watermark, a sink, generated input. The test generates input, runs the pipeline on real Spark against
a real broker, and computes the sums again in plain Python.
"""

import re
import sys
from pathlib import Path
from string import Template
from typing import Final

from ottla.client.failure import Failed
from ottla.spark.runner import UsageError

NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

PIPELINE: Final = '''\
"""Adds up the orders of each article by the minute.

    orders of the topic `$name-orders`  {"article": "tea", "amount": 3, "at": "2026-01-31T12:00:00Z"}
    sums to the topic `$name-sums`      {"minute": "2026-01-31T12:00:00.000Z", "article": "tea", "amount": 17}

Try it:

    ottla serve
    ottla pipeline run $stem.py --generate
    ottla consume $name-sums
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

from pyspark.sql import functions as F

from ottla.spark.pipeline import Option, Pipeline, Record, Run, main

OPTIONS = (
    Option("orders", "$name-orders", "The topic to read."),
    Option("sums", "$name-sums", "The topic to write."),
    Option("late", "1 minute", "How long to wait for late orders before a minute's sums are final."),
)
ARTICLES = ("tea", "coffee", "milk", "sugar")


def run(run: Run) -> None:
    run.ensure_topic(run["orders"])
    run.ensure_topic(run["sums"])
    orders = (
        run.stream(run["orders"], group="$name")
        .select(F.from_json(F.col("value").cast("string"), "article string, amount long, at timestamp").alias("order"))
        .select("order.*")
        .where("article is not null and at is not null")
    )
    sums = (
        orders.withWatermark("at", f"{run.seconds('late')} seconds")
        .groupBy(F.window("at", "1 minute"), "article")
        .agg(F.sum("amount").alias("amount"))
        .select(F.col("window.start").alias("minute"), "article", "amount")
    )
    rows = sums.select(F.col("article").alias("key"), F.to_json(F.struct("minute", "article", "amount")).alias("value"))
    run.to_topic(rows, run["sums"], name="$name-sums")


def generate(run: Run) -> None:
    run.ensure_topic(run["orders"])
    run.send(records(run["orders"], run.seed, datetime.now(UTC)))


def records(topic: str, seed: int, start: datetime) -> Iterator[Record]:
    """Ten orders a second, without end; the same seed makes the same orders."""
    random = Random(seed)
    number = 0
    while True:
        article = random.choice(ARTICLES)
        at = start + timedelta(milliseconds=100 * number)
        order = {"article": article, "amount": random.randint(1, 5), "at": at.isoformat()}
        yield Record(topic, article, json.dumps(order), round(at.timestamp() * 1000))
        number += 1


PIPELINE = Pipeline("$name", "Adds up the orders of each article by the minute.", run, OPTIONS, generate)

if __name__ == "__main__":
    main(PIPELINE)
'''

TEST: Final = '''\
"""The sums of `$stem.py`, on real Spark and a real broker, against the same added up in plain Python.

Needs: pip install 'ottla[spark]' pytest, and Java 17. The broker comes with Ottla's pytest plugin.
"""

import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

sys.path.insert(0, str(Path(__file__).parent))
import $stem as pipeline

COUNT = 3000  # five minutes of orders, of which the last is not over yet
START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_every_minute_that_is_over_is_added_up_once(ottla_broker, tmp_path: Path) -> None:
    produce(ottla_broker.bootstrap, COUNT)
    run_once(ottla_broker.bootstrap, tmp_path)
    run_once(ottla_broker.bootstrap, tmp_path)  # again: nothing new, so nothing is written
    found = read(ottla_broker.bootstrap)
    assert len(found) == len({(one["minute"], one["article"]) for one in found}), "a minute came twice"
    expected = sums(COUNT)
    over = sorted({minute for minute, _ in expected})[:-2]  # the last goes on, the one before may have late orders
    assert {(one["minute"][:16], one["article"]): one["amount"] for one in found} == {
        key: amount for key, amount in expected.items() if key[0] in over
    }


def sums(count: int) -> Counter[tuple[str, str]]:
    added: Counter[tuple[str, str]] = Counter()
    for record in islice(pipeline.records("", 0, START), count):
        order = json.loads(record.value)
        added[order["at"][:16], order["article"]] += order["amount"]
    return added


def produce(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in islice(pipeline.records("$name-orders", 0, START), count):
        producer.produce(record.topic, record.value, record.key)
    assert producer.flush(30) == 0


def run_once(bootstrap: str, folder: Path) -> None:
    command = [sys.executable, pipeline.__file__, "--once", "--bootstrap", bootstrap, "--folder", str(folder)]
    done = subprocess.run([*command, "--master", "local[2]"], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr


def read(bootstrap: str) -> list[dict]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.partition.eof": True})
    consumer.assign([TopicPartition("$name-sums", 0, 0)])
    found = []
    while not (message := consumer.poll(30)).error():
        found.append(json.loads(message.value()))
    consumer.close()
    return found
'''


def write_files(name: str, folder: Path) -> list[Path]:
    """Write both files; existing files are not overwritten."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name}: a pipeline's name has small letters, digits and single hyphens, such as word-count")
    stem = name.replace("-", "_")
    if stem in sys.stdlib_module_names:
        raise UsageError(f"{name}: Python has a module of this name, which {stem}.py would shadow: choose another name")
    files = {folder / f"{stem}.py": PIPELINE, folder / f"test_{stem}.py": TEST}
    if there := [path for path in files if path.exists()]:
        raise Failed(f"{there[0]} already exists: choose another name, or --folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(Template(text).substitute(name=name, stem=stem))
    return list(files)
