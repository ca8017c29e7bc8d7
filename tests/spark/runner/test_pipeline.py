"""What a run gives a pipeline: options with good and bad values, streams and files with their checkpoints, an end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from spark import filling

from ottla.client.failure import Failed
from ottla.spark.runner import Option, Pipeline, Run, UsageError, state
from ottla.spark.runner.pipeline import AGAIN_MAX, retry_when_busy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process import Ottla
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = (
    Option("window", "1 minute", "How long."),
    Option("size", "1_000", "How many."),
    Option("part", "both", "What.", ("left", "both")),
    Option("wide", "no", "How wide."),
    Option("share", "0.5", "How much."),
)


def nothing(run: Run) -> None:
    pass


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Run]:
    def made(*, required: bool = False, bootstrap: str = "nowhere:1", **options: str) -> Run:
        more = (Option("target", None, "The other cluster."),) if required else ()
        return Run(
            pipeline=Pipeline("trial", "For tests.", nothing, OPTIONS + more),
            bootstrap=bootstrap,
            folder=tmp_path,
            options=options,
            once=True,
        )

    return made


def test_options_have_values_of_their_kind(make: Callable[..., Run]) -> None:
    run = make(window="90", part="left")
    assert run["part"] == "left"
    assert run.integer("size") == 1000
    assert run.seconds("window") == 90
    assert run.flag("wide") is False
    assert run.number("share") == 0.5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30 seconds", 30), ("5m", 300), ("1 hour", 3600), ("250ms", 0.25), ("2 days", 172800), ("1.5 minutes", 90)],
)
def test_durations(make: Callable[..., Run], text: str, seconds: float) -> None:
    assert make(window=text).seconds("window") == seconds


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"windw": "1"}, "trial has no option windw: did you mean window?"),
        ({"zzz": "1"}, "trial has no option zzz: it has part, share, size, wide, window"),
        ({"part": "right"}, "part=right: choose one of left, both"),
    ],
)
def test_wrong_options_are_refused_by_name(make: Callable[..., Run], options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        make(**options)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("options", "ask", "sentence"),
    [
        ({"size": "many"}, lambda run: run.integer("size"), "size=many: expected a whole number"),
        ({"share": "half"}, lambda run: run.number("share"), "share=half: expected a number"),
        ({"wide": "perhaps"}, lambda run: run.flag("wide"), "wide=perhaps: expected true or false"),
        ({"size": "0"}, lambda run: run.integer("size", least=1), "size=0: expected a whole number, at least 1"),
        ({"window": "0s"}, lambda run: run.seconds("window", above_zero=True), "window=0s: expected a duration above"),
        ({"window": "long"}, lambda run: run.seconds("window"), "window=long: expected a duration such as 30 seconds"),
    ],
)
def test_wrong_values_are_refused_by_name(
    make: Callable[..., Run], options: dict[str, str], ask: Callable[[Run], object], sentence: str
) -> None:
    with pytest.raises(UsageError) as error:
        ask(make(**options))
    assert str(error.value).startswith(sentence)


def test_an_option_without_default_must_be_given(make: Callable[..., Run]) -> None:
    with pytest.raises(UsageError, match=r"^trial needs --option target=\.\.\.: The other cluster\.$"):
        make(required=True)
    assert make(required=True, target="x:1")["target"] == "x:1"


def test_checkpoints_go_where_they_are_told(make: Callable[..., Run], tmp_path: Path) -> None:
    run = make()
    assert run.checkpoint("trial-a") == (tmp_path / "checkpoints" / "trial-a").as_uri()
    run.checkpoints = "s3a://bucket/place/"
    assert run.checkpoint("trial-a") == "s3a://bucket/place/trial-a"


class Reader:
    """Of a session: what options it was given."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def format(self, name: str) -> Reader:
        return self

    def options(self, **options: str) -> Reader:
        self.given |= options
        return self

    def load(self) -> dict[str, str]:
        return self.given


@pytest.mark.parametrize(
    "ask", [lambda run, **given: run.stream("t", group="g", **given), lambda run, **given: run.table("t", **given)]
)
def test_what_was_aborted_is_left_out_unless_asked_for(make: Callable[..., Run], ask: Callable[..., Any]) -> None:
    run = make()
    run.spark = SimpleNamespace(read=Reader(), readStream=Reader())  # type: ignore[assignment]
    assert ask(run)["kafka.isolation.level"] == "read_committed"
    given = {"kafka.isolation.level": "read_uncommitted", "startingOffsets": "latest"}
    assert ask(run, **given).items() > given.items()


def test_aborted_records_are_neither_in_a_stream_nor_in_a_table(
    make: Callable[..., Run], spark: SparkSession, ottla: Ottla, fresh: Callable[[str], str]
) -> None:
    topic = fresh("trial")
    total, committed = filling.transactional(ottla, topic)
    assert committed < total
    run = make(bootstrap=ottla.bootstrap)
    run.session = spark
    assert run.table(topic).count() == committed
    run.to_files(run.stream(topic, group=topic).select("value"), run.folder / "tables", name="trial-committed")
    run.wait()
    assert spark.read.parquet(str(run.folder / "tables")).count() == committed
    assert run.table(topic, **{"kafka.isolation.level": "read_uncommitted"}).count() == total


def test_only_a_run_in_its_folder_is_asked_to_stop_by_it(make: Callable[..., Run], tmp_path: Path) -> None:
    run = make()
    assert not run.stopping
    state.ask_to_stop(tmp_path)
    assert run.stopping
    run.tenured = False
    assert not run.stopping
    run.ask_to_stop()
    assert run.stopping


def test_a_stream_to_files_ends_by_itself_and_goes_on_where_it_was(
    make: Callable[..., Run], spark: SparkSession, ottla: Ottla, fresh: Callable[[str], str]
) -> None:
    topic, seen = fresh("trial"), []
    for round in range(2):
        run = make(bootstrap=ottla.bootstrap)
        run.session = spark
        run.report = lambda run: seen.extend(query.name for query in run.queries)
        run.ensure_topic(topic, 2)
        produce(ottla.bootstrap, topic, 10 * round, 10)
        run.to_files(run.stream(topic, group="trial").select("value"), run.folder / "tables", name="trial-files")
        run.wait()
        rows = spark.read.parquet(str(run.folder / "tables")).collect()
        assert sorted(int(row.value) for row in rows) == list(range(10 * round + 10))
    assert "trial-files" in seen
    run.end()
    assert spark.range(1).count() == 1, "a session that the run was given goes on"


def test_a_failed_query_is_told_in_a_sentence_and_takes_the_others_with_it(
    make: Callable[..., Run], spark: SparkSession, ottla: Ottla, fresh: Callable[[str], str]
) -> None:
    topic = fresh("trial")
    run = make(bootstrap=ottla.bootstrap)
    run.session, run.once = spark, False
    run.ensure_topic(topic)
    produce(ottla.bootstrap, topic, 0, 1)

    def broken(rows: DataFrame, batch: int) -> None:
        raise Failed("the table is full: make room")

    good = run.each_batch(run.stream(topic, group="trial-good"), lambda rows, batch: None, name="trial-good")
    run.each_batch(run.stream(topic, group="trial-bad"), broken, name="trial-bad")
    with pytest.raises(Failed) as error:
        run.wait()
    assert str(error.value) == "the query trial-bad failed: the table is full: make room"
    assert not good.isActive


def test_a_query_begins_again_when_only_the_machine_was_busy(
    make: Callable[..., Run], spark: SparkSession, ottla: Ottla, fresh: Callable[[str], str]
) -> None:
    topic, counts = fresh("trial"), []
    run = make(bootstrap=ottla.bootstrap)
    run.session = spark
    run.ensure_topic(topic)
    produce(ottla.bootstrap, topic, 0, 5)

    def slow_to_start(rows: DataFrame, batch: int) -> None:
        counts.append(rows.count())
        if len(counts) < 3:
            raise RuntimeError("Python worker failed to connect back.")  # as Spark says it

    run.wait(run.each_batch(run.stream(topic, group="trial-busy"), slow_to_start, name="trial-busy"))
    assert counts == [5, 5, 5], "the same batch until it is done, and then no more"


def test_a_stop_waits_for_the_batch_that_runs(
    make: Callable[..., Run], spark: SparkSession, ottla: Ottla, fresh: Callable[[str], str]
) -> None:
    topic, ended = fresh("trial"), []
    run = make(bootstrap=ottla.bootstrap)
    run.session, run.once = spark, False
    run.ensure_topic(topic)
    produce(ottla.bootstrap, topic, 0, 5)

    def slow(rows: DataFrame, batch: int) -> None:
        run.ask_to_stop()  # in the middle of it
        ended.append(rows.count())

    query = run.each_batch(run.stream(topic, group="trial-slow"), slow, name="trial-slow")
    run.wait()
    assert ended == [5]
    assert not query.isActive
    assert query.exception() is None


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, str(number), str(number))
    assert producer.flush(30) == 0


def test_a_source_is_planned_again_when_only_the_machine_was_busy() -> None:
    from pyspark.errors import AnalysisException

    calls: list[str] = []

    def plan(*failures: str) -> Callable[[], str]:
        calls.clear()

        def work() -> str:
            calls.append("")
            if len(calls) <= len(failures):
                raise AnalysisException(failures[len(calls) - 1])
            return "rows"

        return work

    busy = "Python worker failed to connect back."  # as Spark says it
    assert retry_when_busy(plan(busy, busy)) == "rows"
    assert len(calls) == 3
    with pytest.raises(AnalysisException, match="no such column"):
        retry_when_busy(plan("no such column"))
    assert len(calls) == 1
    with pytest.raises(AnalysisException, match="connect back"):
        retry_when_busy(plan(*[busy] * 10))
    assert len(calls) == 1 + AGAIN_MAX
