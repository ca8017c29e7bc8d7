"""The stages of `articles`, each compared with a computation in pandas and plain Python."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import islice, pairwise
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pandas
import pytest
from confluent_kafka import Producer
from spark.launching import OTTLA, Launched, finished
from spark.topics import committed, letters

from ottla.client.failure import Failed
from ottla.spark.pipelines.articles import pipeline as articles
from ottla.spark.pipelines.articles.markup import plain
from ottla.spark.pipelines.articles.newsroom import people, records
from ottla.spark.pipelines.articles.pipeline import PIPELINE, ArticleMemory, new_step, recommend_batch, signature
from ottla.spark.runner import Run

if TYPE_CHECKING:
    from pathlib import Path

    from process import Ottla
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
COUNT = 400
SCORE = 1.5
BROKEN = ("no JSON", '{"title": "without an id"}', '{"id": "empty", "html": "<p> </p><script>x</script>"}')


def test_killed_and_resumed_each_stage_says_everything_once(ottla: Ottla, tmp_path: Path) -> None:
    run = Run(pipeline=PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path)
    run.ensure_topic("articles", 2)
    run.ensure_topic("users", 2, cleanup_policy="compact")
    produce(ottla.bootstrap)
    command = [*OTTLA, "pipeline", "run", "articles", "--once", "--option", "rows=250", "--option", f"score={SCORE}",
               "--option", "dead.letter=articles-dead"]  # fmt: skip
    folder = tmp_path / "run"
    with Launched(command, folder=folder, bootstrap=ottla.bootstrap) as running:
        running.until_rows("articles-unique", 1)  # one stage is done, the next in the middle
        running.kill()
    finished(command, folder=folder, bootstrap=ottla.bootstrap)

    given = committed(ottla.bootstrap, "articles")
    raw = [message.value() for message in given]
    bad = [one for one in given if one.value().decode() in BROKEN]
    assert [(*one[:2], one[3]) for one in letters(ottla.bootstrap, "articles-dead")] == [
        (one.partition(), one.offset(), one.value()) for one in bad
    ], "as they came, each once"
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
    """Remove tags by a regular expression instead of a parser: for the generator's markup both give the same."""
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
    assert {each["reason"] for each in rejected} == {"it is not JSON, or has no id", "it has no text"}


def check_unique(clean: list[dict[str, Any]], unique: list[dict[str, Any]], duplicates: list[dict[str, Any]]) -> None:
    """By the exact share of common phrases, which the pipeline estimates."""
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
    """The users are those at the time of the batch."""
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
            recommend_batch(run, articles, batch)
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    found = [(each["words"], each["score"]) for each in values(ottla.bootstrap, "again-recommendations")]
    assert found == [(["opera"], pytest.approx(2 + 2 * math.log(2), abs=1e-6)), (["football"], 3.0)]


HOSTILE = (  # no article
    b"",
    b"\xff\xfe\x00",
    b"null",
    b"7",
    b'"text"',
    b"[]",
    b'[{"id": "first", "html": "text"}, {"id": "second", "html": "text"}]',
    b"[" * 100_000,
    b'{"id": ' + b'{"id": ' * 100_000,
    b'{"id": "open", "html": "text',
    b'{"id": null, "html": "text"}',
    b'{"id": "", "html": "text"}',
    b'{"id": "no html"}',
    b'{"id": "empty", "html": "<!--"}',
    b'{"id": "null", "html": null}',
    b'{"id": "' + b"i" * 5_000 + b'", "html": "text"}',
    b'{"id": "grows", "html": "' + "\ufdfa".encode() * 200_000 + b'"}',  # one character becomes eighteen
    b'{"title": "' + b"\x01" * 900_000,  # a byte becomes six
)
STRANGE = {  # articles all the same, with ids of one sort or another
    "marked": b'{"id": "marked", "html": "<![foo[x]]>text one"}',
    "7": b'{"id": 7, "html": 12.5, "title": {"a": ["b", null]}, "feed": [1], "published": {"no": "time"}}',
    "time": b'{"id": "time", "html": "text two", "published": "99999-99-99T99:99:99Z"}',
    "long": b'{"id": "long", "html": "text three", "published": 9223372036854775807}',
    "larger": b'{"id": "larger", "html": "text four", "published": 1e400, "feed": true}',
    "?": rb'{"id": "\ud800", "html": "text five \udfff x", "title": {"\ud800": "\ud800"}}',
    "\0": rb'{"id": "\u0000", "html": "text \u0000 six"}',
    "bytes\ufffd": b'{"id": "bytes\xff", "html": "text seven \xed\xa0\x80", "title": "\xc3"}',
    "digits": b'{"id": "digits", "html": "text eight &#' + b"9" * 5_000 + b';"}',
    "deep": b'{"id": "deep", "html": "' + b"<div>" * 100_000 + b'text nine"}',
    "title": b'{"id": "title", "html": "text ten rocket", "title": "' + b"rocket " * 130_000 + b'"}',
    "twice": b'{"id": "once", "id": "twice", "html": "a", "html": "text eleven"}',
}
USERS = (  # interests of nobody, and of one at last
    b"\xff",
    b"[]",
    b'{"interests": ["rocket"]}',
    b'{"interests": {"rocket": "much"}}',
    b'{"interests": {"rocket": {"a": 1}, "rocket": 1e999}}',
    b'{"interests": {"rocket": 1, "rocket": 2, "text": NaN}}',
    b"{" * 100_000,
)


def test_whatever_an_item_says_the_queries_go_on(ottla: Ottla, spark: SparkSession, tmp_path: Path) -> None:
    names = ("articles", "clean", "rejected", "unique", "duplicates", "users", "recommendations", "dead.letter")
    topics = {name: f"hostile-{name}" for name in names}
    run = Run(pipeline=PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, options=topics, session=spark, once=True)
    run.ensure_topic(topics["articles"], 2)
    run.ensure_topic(topics["users"], 2)
    run.ensure_topic(topics["clean"])
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "message.max.bytes": 1_048_000, "log_level": 0})
    producer.produce(topics["clean"], b'{"id": "foreign", "text": "others may write there \xff"}')
    for value in (*HOSTILE, None, *STRANGE.values()):
        producer.produce(topics["articles"], value)
    for number, value in enumerate((*USERS, json.dumps({"interests": {"rocket": 2.5}}))):
        producer.produce(topics["users"], value, f"user-{number}")
    assert producer.flush(30) == 0
    articles.run(run)

    clean = [message.key() for message in committed(ottla.bootstrap, topics["clean"])]
    assert sorted(key.decode() for key in clean if key is not None) == sorted(STRANGE)
    rejected = values(ottla.bootstrap, topics["rejected"])
    assert len(rejected) == len(HOSTILE) + 1
    raw = {(one.partition(), one.offset()): one.value() for one in committed(ottla.bootstrap, topics["articles"])}
    dead = letters(ottla.bootstrap, topics["dead.letter"])
    assert len({place[:2] for place in dead}) == len(dead) == len(rejected)
    for partition, offset, _, value in dead:
        assert value == raw[partition, offset] or raw[partition, offset].startswith(value), "whole, or cut if too large"
    assert {each["reason"] for each in rejected} == {
        "it is not JSON, or has no id",
        "its id has more than 4000 characters",
        "it has no text",
        "it has more than 1000000 bytes",
    }
    unique, again = values(ottla.bootstrap, topics["unique"]), values(ottla.bootstrap, topics["duplicates"])
    assert sorted(each["id"] for each in (*unique, *again)) == sorted([*STRANGE, "foreign"])
    recommended = values(ottla.bootstrap, topics["recommendations"])
    assert (f"user-{len(USERS)}", "title") in {(each["user"], each["id"]) for each in recommended}


def test_the_order_of_articles_needs_one_partition(ottla: Ottla, spark: SparkSession, tmp_path: Path) -> None:
    options = {"clean": "two-partitions"}
    run = Run(pipeline=PIPELINE, bootstrap=ottla.bootstrap, folder=tmp_path, options=options, session=spark)
    run.ensure_topic("two-partitions", 2)
    with pytest.raises(Failed, match=r"topic two-partitions has 2 partitions, .*: give a topic with one partition"):
        articles.unique(run)


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
        ("<![foo[x]]>text", "text"),
        ("text<![ x", "text"),
        ("text<![%x;[", "text"),
        ("a <![CDATA[ b ]]> c <!doctype [<!x y>]> d <?php e ?> f", "a c ]> d f"),
        ("a<!-->b<!--->c<!-- d --!>e<!-- -- > f", "abce"),
        ("<p title='a > b' alt=\"c > d\" x=y='z>w' i's>text</ p>", "w' i's>text"),
        ('text<a href="never closed>more', "text"),
        ("a </> b </3 c", "a b"),
        ("<script src=x />shown<script>hidden</scripts></SCRIPT >shown", "shown shown"),
        ("<h:p xmlns:h='x'>o<h:em>n</h:em>e<h:style>a</h:style></h:p>", "one"),
        pytest.param(
            "a&#" + "9" * 5000 + ";b&#x" + "9" * 5000 + ";c&#xd800;d&#0;e", "a\ufffdb\ufffdc\ufffdd\ufffde", id="digits"
        ),
        ("<script>'<!--' <a b='</script>text", "text"),
        ("<template>a<template>b</template>c</template>d", "d"),
    ],
)
def test_html_becomes_what_a_reader_sees(markup: str, text: str) -> None:
    assert plain(markup) == text


TOKENS = (
    *"<>!?/-='\"&#;[]%x \n\0\u0301\u0327\ufdfa\ud800\U0001f600",
    *("<!--", "-->", "<![", "]]>", "<![CDATA[", "<!doctype", "</", "/>", "<p>", "<b a=", "<script>", "</script>"),
    *("<style", "<template>", "&#x", "&amp;", "&#99999999999", "&nbsp", "word "),
)


@pytest.mark.parametrize("seed", range(20))
def test_any_markup_becomes_text(seed: int) -> None:
    random = Random(seed)
    for _ in range(200):
        text = plain("".join(random.choices(TOKENS, k=random.randint(1, 60))))
        assert text == " ".join(text.split())


def test_hostile_markup_takes_no_longer_than_other() -> None:
    """A megabyte of each. Quadratic time would be hours."""
    found = [plain(token * (1_000_000 // len(token))) for token in TOKENS if len(token) > 1]
    assert plain("<a " * 300_000) == plain("<a x='" * 150_000) == plain("<a b= =" * 150_000) == ""
    assert len(found) == 19
    marks = plain("e" + "\u0301" * 250_000 + "\u0327" * 250_000)
    assert len(marks) == 500_000


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    memory = ArticleMemory([], b"", 100)
    told = [f"{' '.join(f'word{number}x{place}' for place in range(40))}" for number in range(300)]
    for number, text in enumerate(told):
        assert memory.find_or_remember(f"id-{number}", text, 0.5) is None
    ids, signatures = memory.snapshot()
    assert (ids[0], ids[-1], len(ids), len(signatures)) == ("id-200", "id-299", 100, 100 * 128 * 4)
    again = ArticleMemory(ids, signatures, 100)
    assert again.find_or_remember("id-299", "anything", 0.5) == ("id-299", 1.0)
    assert again.find_or_remember("new", told[250], 0.5) == ("id-250", 1.0)
    assert again.find_or_remember("other", told[10], 0.5) is None, "forgotten"
    assert again.find_or_remember("id-200", told[200], 0.5) is None, "forgotten with it"
    less = ArticleMemory(*again.snapshot(), 2)
    assert less.find_or_remember("other", "anything", 0.5) == ("other", 1.0)
    assert less.find_or_remember("id-299", told[299], 0.5) is None, "it is to remember less than before"
    none = ArticleMemory([], b"", 0)
    assert none.find_or_remember("id", "text", 0.5) is none.find_or_remember("id", "text", 0.5) is None


class State:
    """Spark's, for one group."""

    def __init__(self) -> None:
        self.exists = False

    def update(self, state: tuple[str, bytearray]) -> None:
        self.exists, self.get = True, state


@pytest.mark.parametrize("seed", range(10))
def test_batches_may_be_cut_anywhere(seed: int) -> None:
    """Also if a batch has more articles than are remembered: the result is the same as one article at a time."""
    random = Random(seed)
    drawn = [random.choice("abcdefgh") for _ in range(120)]
    rows = [(number, f"{name}{random.randint(0, 3)}", name * 3) for number, name in enumerate(drawn)]
    remembered: list[tuple[str, str]] = []
    expected = []
    for _, name, text in rows:
        same = [other for other, its in remembered if other == name] or [o for o, its in remembered if its == text]
        expected.append(("duplicates", same[0]) if same else ("unique", name))
        if not same:
            remembered = [*remembered, (name, text)][-3:]
    cuts = sorted({0, len(rows), *(random.randrange(len(rows)) for _ in range(random.choice((0, 3, 40))))})
    step, state, found = new_step("unique", "duplicates", 3, 0.5), State(), []
    for start, end in pairwise(cuts):
        batch = random.sample(rows[start:end], end - start)
        frame = pandas.DataFrame([(*row, row[1]) for row in batch], columns=["offset", "id", "text", "value"])
        for output in step(("articles",), iter([frame[::2], frame[1::2]]), state):
            found += list(output.itertuples(index=False))
    told = [(topic, json.loads(value)["of"] if topic == "duplicates" else value) for topic, _, value in found]
    assert told == expected
    assert {topic for topic, _ in expected} == {"unique", "duplicates"}


def test_signatures_estimate_the_share_of_phrases_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"w{number:03}" for number in range(203)]
    one, other = " ".join(words[:152]), " ".join(words[51:])  # 149 phrases each, 98 in common
    whole = signature(one)
    estimate = (whole == signature(other)).mean()
    assert abs(estimate - 98 / 200) < 0.15
    assert (signature("") == signature("")).all()
    monkeypatch.setattr(articles, "AT_ONCE", 7)
    assert (signature(one) == whole).all(), "in parts it is the same"


def test_the_same_seed_makes_the_same_articles() -> None:
    first, again, other = (list(islice(records("a", seed, START), 300)) for seed in (1, 1, 2))
    assert first == again != other
    assert list(people("u", 1, 5)) == list(people("u", 1, 5)) != list(people("u", 2, 5))
