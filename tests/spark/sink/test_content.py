"""A decided epoch counts as done only if a repetition has the same input. Spark's plan shows that if rows differ."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

import pytest

from ottla.client.failure import Failed
from ottla.spark.sink.content import BatchPlan, EpochContent
from ottla.spark.sink.decisions import Prepared, SinkDecision, decide, decode

if TYPE_CHECKING:
    from pathlib import Path

PLAN: Final = BatchPlan("0a", '{"visits": {"0": 7}}')
OTHER: Final = BatchPlan("0b", '{"visits": {"0": 9}}')


def message(rows: int = 3, digest: int = 17, *topics: str) -> Prepared:
    return Prepared("q", 4, rows, digest, topics or ("orders",), decided=True)


def standing(
    rows: int = 3, digest: int = 17, topics: tuple[str, ...] = ("orders",), plan: BatchPlan | None = PLAN
) -> SinkDecision:
    return SinkDecision(4, (), content=EpochContent(rows, digest, topics, plan))


@pytest.mark.parametrize("plan", [PLAN, OTHER, None])
def test_the_same_rows_are_done_whatever_was_planned(plan: BatchPlan | None) -> None:
    last = standing()
    assert decide(last, "q", 4, [message(1, 2), message(2, 15)], plan) is last


def test_the_same_plan_is_done_whatever_the_rows(caplog: pytest.LogCaptureFixture) -> None:
    """rand() in a query gives other rows when a batch is repeated."""
    last = standing()
    with caplog.at_level(logging.WARNING):
        assert decide(last, "q", 4, [message(3, 18)], PLAN) is last
    assert "came out with other rows" in caplog.text


@pytest.mark.parametrize("plan", [OTHER, None])
@pytest.mark.parametrize(("rows", "told"), [(5, "3 rows, and now has 5: nothing"), (3, "3 rows, and now has 3 others")])
def test_other_rows_are_refused(plan: BatchPlan | None, rows: int, told: str) -> None:
    with pytest.raises(Failed, match=f"batch 4 of query q is already in topic orders with {told}") as refused:
        decide(standing(), "q", 4, [message(rows, 18)], plan)
    text = str(refused.value)
    assert "continue with the newest checkpoint" in text
    assert 'startingOffsets is {"visits": {"0": 7}}' in text
    assert "ottla.kept.batch=4" in text


def test_other_topics_are_refused_whatever_was_planned() -> None:
    told = "is already in topic orders, but would now be written to topics bills, orders: nothing was written"
    with pytest.raises(Failed, match=told):
        decide(standing(), "q", 4, [message(3, 17, "bills"), message(0, 0)], PLAN)


def test_rows_that_go_to_no_topic_are_compared_by_number() -> None:
    with pytest.raises(Failed, match="is already in no topic with 0 rows, and now has 3"):
        decide(standing(0, 0, (), None), "q", 4, [message()])


def test_the_user_may_keep_what_is_there() -> None:
    last = standing()
    assert decide(last, "q", 4, [message(9, 9, "bills")], OTHER, keep=True) is last


def test_a_decision_of_an_earlier_version_is_taken_as_it_is() -> None:
    old = {"format": 1, "epoch": 4, "parts": [[3, 5, 7, "ottla-sink/q/1/3.5.7", 9, 2]], "void": False}
    last = decode(json.dumps(old).encode())
    assert last.content is None
    assert decide(last, "q", 4, [message()], PLAN) is last


def test_content_is_written_as_it_is_read() -> None:
    for plan in (None, PLAN):
        decision = standing(plan=plan)
        assert decode(decision.encode()) == decision


def test_what_is_decided_anew_has_its_content() -> None:
    fresh = [Prepared("q", 4, 1, 2**64 - 1, ("b",)), Prepared("q", 4, 2, 2, ("a",))]
    assert decide(None, "q", 4, fresh, PLAN).content == EpochContent(3, 1, ("a", "b"), PLAN)


def plan_of(folder: Path, *lines: str) -> BatchPlan | None:
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / "4").write_text("\n".join(["v1", '{"batchTimestampMs":1}', *lines]))
    return BatchPlan.read(str(folder), 4)


def test_a_plan_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    ours = '{"version": 1, "token": "", "topics": {"visits": {"partitions": {"0": 12, "1": 3}}}}'
    first = plan_of(tmp_path, ours, '{"logOffset":3}')
    assert first is not None
    assert first.ends == '{"visits": {"0": 12, "1": 3}} and {"logOffset":3}'
    assert BatchPlan.read(f"file:{tmp_path}", 4) == BatchPlan.read(f"file://{tmp_path}", 4) == first
    second = plan_of(tmp_path, ours.replace("12", "13"), '{"logOffset":3}')
    assert second is not None
    assert second.digest != first.digest
    long = plan_of(tmp_path, "x" * 5000)
    assert long is not None
    assert long.ends == ""


def test_what_is_not_there_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for place in (None, str(tmp_path), "s3a://bucket/checkpoint", "hdfs:///user/x", "bad\0name"):
        assert BatchPlan.read(place, 4) is None
    (tmp_path / "offsets" / "4").write_bytes(b"\xff\xfe\0")
    torn = BatchPlan.read(str(tmp_path), 4)
    assert torn is not None
    assert torn.ends == ""
