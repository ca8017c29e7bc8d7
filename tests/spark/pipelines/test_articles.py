"""The stages of `articles`, each against the same worked out by itself in pandas and plain Python."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pandas
import pytest
from confluent_kafka import Producer
from spark.launching import OTTLA, Launched, finished
from spark.topics import committed

from ottla.client.failure import Failed
from ottla.spark.pipeline import Run
from ottla.spark.pipelines.articles import PIPELINE, Memory, plain, recommended, signature
from ottla.spark.pipelines.feeds import feed_items, from_feeds
from ottla.spark.pipelines.newsroom import people, records

if TYPE_CHECKING:
    from pathlib import Path

    from process import Ottla
    from pyspark.sql import SparkSession

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
COUNT = 400
SCORE = 1.5
BROKEN = ("no JSON", '{"title": "without an id"}', '{"id": "empty", "html": "<p> </p><script>x</script>"}')
RSS = """<?xml version="1.0"?><rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel>
<title>The Paper</title><item><guid>one</guid><title>Tea &amp; milk</title>
<pubDate>Sat, 31 Jan 2026 12:00:00 GMT</pubDate>
<description>short</description><content:encoded><![CDATA[<p>Long <b>story</b></p>]]></content:encoded></item>
<item><link>http://example.org/two</link><title>Two</title><description>plain</description></item>
<item><title>nameless</title></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Notes</title><entry><id>tag:1</id><title>Three</title>
<updated>2026-01-31T12:00:00Z</updated><link href="http://example.org/3"/>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">Some <em>words</em></div></content></entry></feed>"""


@pytest.mark.timeout(400)
def test_killed_and_resumed_each_stage_says_everything_once(ottla: Ottla, tmp_path: Path) -> None:
    run = Run(pipeline=PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path)
    run.ensure_topic("articles", 2)
    run.ensure_topic("users", 2, cleanup_policy="compact")
    produce(ottla.bootstrap)
    command = [*OTTLA, "pipeline", "run", "articles", "--once", "--option", "rows=250", "--option", f"score={SCORE}"]
    folder = tmp_path / "run"
    with Launched(command, folder=folder, bootstrap=ottla.bootstrap) as running:
        running.until_rows("articles-unique", 1)  # one stage is done, the next in the middle
        running.kill()
    finished(command, folder=folder, bootstrap=ottla.bootstrap)

    raw = [message.value() for message in committed(ottla.bootstrap, "articles")]
    clean = values(ottla.bootstrap, "articles-clean")
    check_clean(raw, clean, values(ottla.bootstrap, "articles-rejected"))
    unique, duplicates = values(ottla.bootstrap, "articles-unique"), values(ottla.bootstrap, "articles-duplicates")
    check_unique(clean, unique, duplicates)
    check_recommended(unique, committed(ottla.bootstrap, "users"), values(ottla.bootstrap, "recommendations"))


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in people("users", 5, 10):
        producer.produce("users", record.value, record.key)
    producer.produce("users", json.dumps({"interests": {"football": 9}}), "leaves")
    producer.produce("users", None, "leaves")
    producer.produce("users", json.dumps({"interests": {"opera": 9}}), "changes")
    producer.produce("users", json.dumps({"interests": {"rocket": 2.5}}), "changes")
    for number, record in enumerate(islice(records("articles", 5, START), COUNT)):
        producer.produce("articles", record.value, record.key)
        if number % 100 == 50:
            for text in BROKEN:
                producer.produce("articles", text, "x")
    assert producer.flush(30) == 0


def check_clean(raw: list[bytes], clean: list[dict[str, Any]], rejected: list[dict[str, Any]]) -> None:
    """Tags cut out by expression instead of by a parser: the generator's markup is tame enough for both to agree."""
    expected = []
    for value in raw:
        try:
            article = json.loads(value)
            text = re.sub(r"<script>.*?</script>", "", article["html"])
            text = re.sub(r"</?[ab]\b[^>]*>", "", text)
            text = " ".join(re.sub(r"<[^>]+>", " ", text).replace("&nbsp;", " ").split())
            if text:
                expected.append((article["id"], article["feed"], article["title"], text))
        except (ValueError, KeyError):
            continue
    found = [(each["id"], each["feed"], each["title"], each["text"]) for each in clean]
    assert sorted(found) == sorted(expected)
    assert len(rejected) == len(raw) - len(expected) == 4 * len(BROKEN)
    assert Counter(each["article"] for each in rejected) == dict.fromkeys(BROKEN, 4)
    assert {each["reason"] for each in rejected} == {"it is no JSON, or has no id", "it has no text"}


def check_unique(clean: list[dict[str, Any]], unique: list[dict[str, Any]], duplicates: list[dict[str, Any]]) -> None:
    """By the exact share of phrases in common, where the pipeline estimates it."""
    kept: dict[str, set[tuple[str, ...]]] = {}
    again = []
    for article in clean:
        words = article["text"].lower().split()
        phrases = {tuple(words[at : at + 4]) for at in range(len(words) - 3)}
        alike = [len(phrases & other) / len(phrases | other) >= 0.5 for other in kept.values()]
        if article["id"] in kept or any(alike):
            again.append(article["id"])
        else:
            kept[article["id"]] = phrases
    assert sorted(each["id"] for each in unique) == sorted(kept)
    assert sorted(each["id"] for each in duplicates) == sorted(again)
    assert any(name.startswith("again") for name in again)
    assert any(name.startswith("story") for name in again)
    assert all(each["of"] in kept for each in duplicates)


def check_recommended(unique: list[dict[str, Any]], users: list[Any], found: list[dict[str, Any]]) -> None:
    last = {message.key().decode(): message.value() for message in users}
    wanted = pandas.DataFrame(
        [
            (user, word, weight)
            for user, value in last.items()
            if value
            for word, weight in json.loads(value)["interests"].items()
        ],
        columns=["user", "word", "weight"],
    )
    words = pandas.DataFrame(
        [
            (article["id"], word, 1 + math.log(often))
            for article in unique
            for word, often in Counter(f"{article['title']} {article['text']}".lower().split()).items()
        ],
        columns=["id", "word", "often"],
    )
    both = wanted.merge(words, on="word")
    both["score"] = both["weight"] * both["often"]
    scores = both.groupby(["user", "id"])["score"].sum().round(6)
    expected = scores[scores >= SCORE].to_dict()
    assert len(expected) > 100
    assert {(each["user"], each["id"]): pytest.approx(each["score"], abs=2e-6) for each in found} == expected
    assert len(found) == len(expected), "no recommendation comes twice"
    assert "leaves" not in {each["user"] for each in found}
    assert all(each["words"] == ["rocket"] for each in found if each["user"] == "changes")


def values(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in committed(bootstrap, topic)]


def test_a_batch_of_recommendations_that_comes_again_is_written_once(
    ottla: Ottla, spark: SparkSession, tmp_path: Path
) -> None:
    """And users are those of the moment the batch is made."""
    topics = {"users": "again-users", "recommendations": "again-recommendations"}
    run = Run(pipeline=PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, options=topics, session=spark)
    for topic in topics.values():
        run.ensure_topic(topic)
    users = Producer({"bootstrap.servers": ottla.bootstrap})
    articles = spark.createDataFrame([("1", "Opera", "opera and football")], "id string, title string, text string")
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", str(uuid4()))
    try:
        for batch, interests in ((0, {"opera": 2.0}), (0, {"opera": 2.0}), (1, {"football": 3.0})):
            users.produce("again-users", json.dumps({"interests": interests}), "user")
            assert users.flush(30) == 0
            recommended(run, articles, batch)
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    found = [(each["words"], each["score"]) for each in values(ottla.bootstrap, "again-recommendations")]
    assert found == [(["opera"], pytest.approx(2 + 2 * math.log(2), abs=1e-6)), (["football"], 3.0)]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>one</p><p>two</p>", "one two"),
        ("o<b>n</b>e &amp; <i>tw</i>o", "one & two"),
        ("a\u00a0b&nbsp;c\n\td", "a b c d"),
        ("\ufb01sh \u2460", "fish 1"),
        ("<style>p {}</style>x<script>if (a < b) {}</script>y", "x y"),
        ("a <!-- no --> b <br> c < d", "a b c < d"),
        ("<p>never closed <b>bold", "never closed bold"),
        ("</script>text", "text"),
        ("", ""),
    ],
)
def test_html_becomes_what_a_reader_sees(markup: str, text: str) -> None:
    assert plain(markup) == text


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    memory = Memory([], b"")
    told = [f"{' '.join(f'word{number}x{place}' for place in range(40))}" for number in range(300)]
    for number, text in enumerate(told):
        assert memory.seen(f"id-{number}", text, 0.5) is None
    ids, signatures = memory.kept(100)
    assert (ids[0], ids[-1], len(ids), len(signatures)) == ("id-200", "id-299", 100, 100 * 128 * 4)
    again = Memory(ids, signatures)
    assert again.seen("id-299", "anything", 0.5) == ("id-299", 1.0)
    assert again.seen("new", told[250], 0.5) == ("id-250", 1.0)
    assert again.seen("other", told[10], 0.5) is None, "forgotten"


def test_signatures_estimate_the_share_of_phrases_in_common() -> None:
    words = [f"w{number:03}" for number in range(203)]
    one, other = " ".join(words[:152]), " ".join(words[51:])  # 149 phrases each, 98 in common
    estimate = (signature(one) == signature(other)).mean()
    assert abs(estimate - 98 / 200) < 0.15
    assert (signature("") == signature("")).all()


def test_feeds_are_read_from_files(tmp_path: Path) -> None:
    rss, atom = tmp_path / "paper.rss", tmp_path / "notes.atom"
    rss.write_text(RSS)
    atom.write_text(ATOM)
    options = {"feeds": f"{rss}, {atom}"}
    run = Run(pipeline=PIPELINE, bootstrap="nowhere:1", folder=tmp_path, options=options, once=True)
    items = [json.loads(record.value) for record in from_feeds(run)]
    assert [item["id"] for item in items] == ["one", "http://example.org/two", "tag:1"]
    assert items[0] == {
        "id": "one",
        "feed": "The Paper",
        "title": "Tea & milk",
        "html": "<p>Long <b>story</b></p>",
        "published": "2026-01-31T12:00:00+00:00",
    }
    assert items[1]["published"] is None
    assert plain(items[2]["html"]) == "Some words"
    assert items[2]["feed"] == "Notes"
    with pytest.raises(Failed, match=r"missing.rss .*: give a file or an address of RSS or Atom"):
        list(from_feeds(Run(pipeline=PIPELINE, bootstrap="", folder=tmp_path, options={"feeds": "missing.rss"})))
    with pytest.raises(Failed, match="is no RSS or Atom feed, since it is no XML"):
        list(feed_items("x", b"hello"))


def test_the_same_seed_makes_the_same_articles() -> None:
    first, again, other = (list(islice(records("a", seed, START), 300)) for seed in (1, 1, 2))
    assert first == again != other
    assert list(people("u", 1, 5)) == list(people("u", 1, 5)) != list(people("u", 2, 5))
