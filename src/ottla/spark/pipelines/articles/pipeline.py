"""Articles of many feeds: cleaned, deduplicated, recommended to interested users.

    articles ─ clean ─► articles-clean ─ unique ─► articles-unique ─ recommend ─► recommendations
                 └────► articles-rejected  └─────► articles-duplicates   └─ users (a compacted topic)

Every stage is a separate query from topic to topic, exactly once, and may run alone (`stage`) or with the others.

    clean       HTML becomes text, Unicode and white space are normalised; what is not an article is rejected with the
                reason, and goes unchanged to `dead.letter`, if there is such a topic
    unique      an article is a duplicate if its id, or most of its text, was seen among the last `remember` articles
                that were not duplicates. Similarity of texts is that of their sets of four-word phrases, estimated by
                MinHash. Which of two came first is the order of `articles-clean`, which therefore has one partition:
                the result is the same however Spark cuts the topic into batches.
    recommend   a user has words and weights; an article's score is the sum of the weights of the words that it has,
                each times 1 + ln(how often). From `score` on it is recommended. Users are read again for every batch.

    an article  {"id": "...", "feed": "...", "title": "...", "html": "<p>...", "published": "2026-01-31T12:00:00Z"}
    a user      key: the name, value: {"interests": {"football": 1.0, "opera": 0.5}}; null: the user has left

Try it:

    ottla serve
    ottla pipeline run articles --generate --rate 20
    ottla consume recommendations
    ottla pipeline run articles --generate --option feeds=https://example.org/feed.xml,news.atom       real feeds

Items are untrusted: whatever one contains, it is cleaned or rejected, and the queries continue.
"""

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cache, partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql import types

from ottla.client.failure import Failed
from ottla.spark.pipelines.articles.feeds import from_feeds
from ottla.spark.pipelines.articles.markup import plain
from ottla.spark.pipelines.articles.newsroom import people, records
from ottla.spark.runner import Option, Pipeline, Run, main
from ottla.spark.runner.letters import NO_HEADERS, letter_headers
from ottla.spark.runner.meter import ASIDE
from ottla.spark.values.udf import over_columns

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.state import GroupState

STAGES: Final = ("clean", "unique", "recommend")
OPTIONS: Final = (
    Option("stage", "all", "What to do.", (*STAGES, "all")),
    Option("articles", "articles", "The topic with the original articles."),
    Option("clean", "articles-clean", "The topic for cleaned articles."),
    Option("rejected", "articles-rejected", "The topic for what is not an article."),
    Option(
        "dead.letter",
        "",
        "The topic for the original records that are not articles; empty: they are only in `rejected`.",
    ),
    Option("unique", "articles-unique", "The topic for articles without duplicates."),
    Option("duplicates", "articles-duplicates", "The topic for duplicates and what they duplicate."),
    Option("users", "users", "The topic with users and their interests."),
    Option("recommendations", "recommendations", "The topic for recommendations."),
    Option("remember", "10000", "Look for duplicates among this many articles."),
    Option("likeness", "0.5", "Texts that have this share of their phrases in common are the same story."),
    Option("score", "1.5", "Recommend an article from this score on."),
    Option("rows", "10000", "At most this many articles in a micro-batch."),
    Option("feeds", "", "RSS or Atom files or addresses to read, instead of generated articles; separated by commas."),
    Option("every", "5 minutes", "How often to look for new items in feeds."),
    Option("people", "20", "How many users to generate."),
)
RAW: Final = "id string, feed string, title string, html string, published timestamp"
CLEAN: Final = "id string, feed string, title string, text string, published timestamp"
PARTITIONS: Final = 4
PHRASE: Final = 4  # words
HASHES: Final = 128
AT_ONCE: Final = 4096  # phrases hashed together: limits the memory for a text of a million words
WORD: Final = re.compile(r"\w{3,}")
# A topic accepts records of a little more than a million bytes. A refused record would stop the query for good.
RECORD_MAX: Final = 1_000_000  # bytes
REJECTED_MAX: Final = 100_000  # characters of an original article, each at most six bytes in JSON
ID_MAX: Final = 4_000  # characters; `remember` ids are kept
TITLE_MAX: Final = 1_000  # characters of a title in a recommendation, of which there is one for every user


def run(run: Run) -> None:
    for option in ("articles", "rejected", "unique", "duplicates", "recommendations"):
        run.ensure_topic(run[option], PARTITIONS)
    run.ensure_topic(run["clean"], 1)
    if run["dead.letter"]:
        run.ensure_topic(run["dead.letter"], PARTITIONS)
    run.ensure_topic(run["users"], PARTITIONS, cleanup_policy="compact")
    for stage, start in (("clean", clean), ("unique", unique), ("recommend", recommend)):
        if run["stage"] in (stage, "all") and not run.stopping:
            query = start(run)
            if run.once:
                run.wait(query)  # the next stage must find everything that this one writes
            while query.isActive and query.lastProgress is None and not run.stopping:
                run.wait(seconds=0.5)  # one starts after the other: Spark gives their Python processes ten seconds


def rows(run: Run, option: str, group: str, schema: str) -> "DataFrame":
    """Articles of a topic, with their position and original text."""
    text = F.make_valid_utf8(F.col("value").cast("string"))  # Python would refuse the whole batch for one invalid byte
    frame = run.stream(
        run[option], group=group, maxOffsetsPerTrigger=str(run.integer("rows", least=1)), includeHeaders="true"
    )
    record = F.struct("key", "value", "headers").alias("record")
    return frame.select(
        "partition", "offset", record, text.alias("value"), F.from_json(text, schema).alias("article")
    ).select("partition", "offset", "record", "value", "article.*")


# Clean.


def clean(run: Run) -> "StreamingQuery":
    articles = rows(run, "articles", "articles-clean", RAW)
    as_text = over_columns(texts, types.StringType())
    cleaned = articles.withColumn("title", as_text("title")).withColumn("text", as_text("html"))
    good = F.to_json(F.struct("id", "feed", "title", "text", "published"))
    reason = (
        F.when(F.coalesce("id", F.lit("")) == "", "it is not JSON, or has no id")
        .when(F.length("id") > ID_MAX, f"its id has more than {ID_MAX} characters")
        .when(F.coalesce("text", F.lit("")) == "", "it has no text")
        .when(F.octet_length(good) > RECORD_MAX, f"it has more than {RECORD_MAX} bytes")
        .otherwise(F.lit(None))
    )
    bad = F.to_json(F.struct(reason.alias("reason"), F.substring("value", 1, REJECTED_MAX).alias("article")))
    key = F.substring("id", 1, ID_MAX)
    told = [
        F.when(reason.isNull(), row(run["clean"], key, good)),
        F.when(reason.isNotNull(), row(run["rejected"], key, bad)),
    ]
    if run["dead.letter"]:
        headers = letter_headers(reason, run["articles"], F.col("record.headers"))
        letter = row(run["dead.letter"], F.col("record.key"), F.col("record.value"), headers)
        told.append(F.when(reason.isNotNull(), letter))
    counted = cleaned.observe(ASIDE, F.count_if(reason.isNotNull()).alias("count"))
    output = counted.select(F.inline(F.array_compact(F.array(*told))))
    return run.to_topic(output, None, name="articles-clean", dead_letter=run["dead.letter"])


def row(topic: str, key: "Column", value: "Column", headers: "Column | None" = None) -> "Column":
    """A record for a topic as one column, so that all have the same type."""
    own = F.expr(NO_HEADERS) if headers is None else headers
    named = {"topic": F.lit(topic), "key": key.cast("binary"), "value": value.cast("binary"), "headers": own}
    return F.struct(*(column.alias(name) for name, column in named.items()))


def texts(column: "pa.Array") -> "pa.Array":
    import pyarrow as pa

    return pa.array([None if each is None else plain(each) for each in column.to_pylist()], pa.string())


# Unique.


def unique(run: Run) -> "StreamingQuery":
    with run.cluster() as cluster:
        partitions = cluster.topic(run["clean"]).partitions
    if partitions != 1:
        raise Failed(
            f"topic {run['clean']} has {partitions} partitions, and which of two articles came first is known only "
            "within one: give a topic with one partition, with --option clean=..."
        )
    articles = rows(run, "clean", "articles-unique", CLEAN).where("id is not null and text is not null")
    step = new_step(run["unique"], run["duplicates"], run.integer("remember", least=1), run.number("likeness"))
    output = (
        articles.select("offset", "id", "text", "value", F.lit("articles").alias("all"))
        .groupBy("all")
        .applyInPandasWithState(
            step,
            "topic string, key string, value string",
            "ids string, signatures binary",
            "append",
            "NoTimeout",
        )
    )
    return run.to_topic(output, None, name="articles-unique")


def new_step(good: str, bad: str, remember: int, likeness: float) -> "Callable[..., Iterator[pandas.DataFrame]]":
    """The function that Spark calls with the new articles and the memory of earlier ones."""

    def step(
        key: tuple[Any, ...], frames: "Iterator[pandas.DataFrame]", state: "GroupState"
    ) -> "Iterator[pandas.DataFrame]":
        import pandas

        ids, signatures = state.get if state.exists else ("[]", b"")
        memory = ArticleMemory(json.loads(ids), bytes(signatures), remember)
        found = []
        for article in pandas.concat(list(frames)).sort_values("offset").itertuples():
            other = memory.find_or_remember(article.id, article.text, likeness)
            if other is None:
                found.append((good, article.id, article.value))
            else:
                duplicate = {"id": article.id, "of": other[0], "likeness": other[1]}
                found.append((bad, article.id, json.dumps(duplicate)))
        ids, signatures = memory.snapshot()
        state.update((json.dumps(ids), bytearray(signatures)))
        yield pandas.DataFrame(found, columns=["topic", "key", "value"])

    return step


class ArticleMemory:
    """Ids and signatures of the last `remember` articles, the oldest first.

    It forgets with every added article, not at the end of a batch, because where batches end is arbitrary.
    """

    def __init__(self, ids: Iterable[str], signatures: bytes, remember: int) -> None:
        import numpy

        self._remember = max(0, remember)
        self._ids = list(ids)
        self._known = {name: place for place, name in enumerate(self._ids)}
        self._signatures = numpy.frombuffer(signatures, numpy.uint32).reshape(-1, HASHES)

    @property
    def _first(self) -> int:
        """The index of the oldest article that is not forgotten."""
        return max(0, len(self._ids) - self._remember)

    def find_or_remember(self, name: str, text: str, likeness: float) -> tuple[str, float] | None:
        """The article that this duplicates, and their similarity; or None, and this one is remembered."""
        first = self._first
        if self._known.get(name, -1) >= first:
            return name, 1.0
        mine = signature(text)
        if first < len(self._ids):
            alike = (self._signatures[first : len(self._ids)] == mine).mean(axis=1)
            best = int(alike.argmax())
            if alike[best] >= likeness:
                return self._ids[first + best], float(alike[best])
        if len(self._ids) == len(self._signatures):
            self._make_room()
        self._signatures[len(self._ids)] = mine
        self._known[name] = len(self._ids)
        self._ids.append(name)
        return None

    def _make_room(self) -> None:
        """Double the space, so that not every article copies everything. Forgotten articles are dropped."""
        import numpy

        first = self._first
        self._ids = self._ids[first:]
        self._known = {name: place for place, name in enumerate(self._ids)}
        more = numpy.zeros((max(64, len(self._ids)), HASHES), numpy.uint32)
        self._signatures = numpy.concatenate([self._signatures[first:], more])

    def snapshot(self) -> tuple[list[str], bytes]:
        first = self._first
        return self._ids[first:], self._signatures[first : len(self._ids)].tobytes()


def signature(text: str) -> "NDArray[Any]":
    """MinHash: for each of many hash functions, the minimum over all phrases. The share of equal values in two
    signatures estimates the share of phrases that the texts have in common."""
    import numpy

    words = re.findall(r"\w+", text.lower())
    phrases = {" ".join(words[at : at + PHRASE]) for at in range(max(1, len(words) - PHRASE + 1))}
    hashes = numpy.array([zlib.crc32(phrase.encode()) for phrase in phrases], numpy.uint64)
    factor, offset = functions()
    parts = [hashes[at : at + AT_ONCE] for at in range(0, len(hashes), AT_ONCE)]
    least = numpy.min([(factor * part + offset).min(axis=1) >> numpy.uint64(32) for part in parts], axis=0)
    return numpy.asarray(least, numpy.uint32)


@cache
def functions() -> "tuple[NDArray[Any], NDArray[Any]]":
    """Hash functions, always the same, because signatures are compared with those of other runs."""
    import numpy

    random = Random(0)
    drawn = numpy.array([[random.getrandbits(64) | 1] for _ in range(2 * HASHES)], numpy.uint64)
    return drawn[:HASHES], drawn[HASHES:]


# Recommend.


def recommend(run: Run) -> "StreamingQuery":
    articles = rows(run, "unique", "articles-recommend", CLEAN).where("id is not null and text is not null")
    return run.each_batch(articles, partial(recommend_batch, run), name="articles-recommend")


def recommend_batch(run: Run, articles: "DataFrame", batch: int) -> None:
    """Score the articles of a batch for the current users. A repeated batch finds that it is already written."""
    counted = over_columns(weights, types.MapType(types.StringType(), types.DoubleType()))
    words = articles.select(
        "id",
        F.substring("title", 1, TITLE_MAX).alias("title"),
        F.explode(counted(F.concat_ws(" ", "title", "text"))).alias("word", "often"),
    )
    scored = (
        words.join(F.broadcast(interests(run)), "word")
        .groupBy("user", "id", "title")
        .agg(
            F.round(F.sum(F.col("weight") * F.col("often")), 6).alias("score"),
            F.sort_array(F.collect_set("word")).alias("words"),
        )
        .where(F.col("score") >= run.number("score"))
    )
    value = F.to_json(F.struct("user", "id", "title", "score", "words"))
    query = articles.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    writer = scored.select(F.col("user").alias("key"), value.alias("value")).write.format("ottla").mode("append")
    security = {f"kafka.{name}": value for name, value in run.properties.items()}
    writer = writer.options(**{"kafka.bootstrap.servers": run.bootstrap, "topic": run["recommendations"], **security})
    writer.options(**{"exactly.once": "true", "ottla.write.id": f"articles-recommend-{query}"}).option(
        "ottla.write.epoch", batch
    ).save()


def interests(run: Run) -> "DataFrame":
    """user, word, weight: the latest value of each user's key."""
    place = F.struct("partition", "offset")
    last = run.table(run["users"]).groupBy("key").agg(F.max_by("value", place).alias("value"))
    said = F.from_json(F.col("value").cast("string"), "interests map<string, double>")
    return last.select(F.col("key").cast("string").alias("user"), F.explode(said["interests"]).alias("word", "weight"))


def weights(column: "pa.Array") -> "pa.Array":
    """Words with 1 + ln(how often they occur)."""
    import math

    import pyarrow as pa

    counts = [Counter(WORD.findall((each or "").lower())) for each in column.to_pylist()]
    made = [[(word, 1 + math.log(often)) for word, often in each.items()] for each in counts]
    return pa.array(made, pa.map_(pa.string(), pa.float64()))


# Generated input, and real.


def generate(run: Run) -> None:
    run.ensure_topic(run["articles"], PARTITIONS)
    run.ensure_topic(run["users"], PARTITIONS, cleanup_policy="compact")
    run.send(people(run["users"], run.seed, run.integer("people", least=1)))
    if run["feeds"]:
        run.send(from_feeds(run))
    else:
        run.send(records(run["articles"], run.seed, datetime.now(UTC), 1 / run.rate if run.rate else 1.0))


PIPELINE = Pipeline(
    "articles", "Feed items cleaned, without duplicates, recommended by interest.", run, OPTIONS, generate
)

if __name__ == "__main__":
    main(PIPELINE)
