"""The broker's own batches: both implementations build the same bytes, and validation finds nothing to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ottla.config import load, topic_config
from ottla.records import batch, native, own_batch
from ottla.records.own_batch import IN_TRANSACTION, MARKER, PLAIN
from ottla.records.validate import validate

if TYPE_CHECKING:
    import pytest

CONFIG = topic_config(load({}), {})
NOW_MS = 1_700_000_000_000
RECORDS = st.lists(st.tuples(st.binary(max_size=300), st.none() | st.binary(max_size=300)), min_size=1, max_size=200)
OFFSETS = st.integers(0, 1 << 60)
EPOCHS = st.integers(-1, 0x7FFFFFFF)
PRODUCERS = st.sampled_from(
    [(PLAIN, -1, -1), (IN_TRANSACTION, 7, 0), (IN_TRANSACTION, 1 << 60, 0x7FFF), (MARKER, 7, 3)]
)


@given(RECORDS, OFFSETS, EPOCHS, PRODUCERS)
def test_both_build_the_same_bytes(
    records: list[tuple[bytes, bytes | None]], base: int, epoch: int, producer: tuple[int, int, int]
) -> None:
    attributes, producer_id, producer_epoch = producer
    arguments = records, base, epoch, NOW_MS, producer_id, producer_epoch, attributes
    assert native.own_batch(*arguments) == own_batch.build(*arguments)


@given(RECORDS, OFFSETS, EPOCHS, PRODUCERS)
def test_validation_changes_nothing(
    records: list[tuple[bytes, bytes | None]], base: int, epoch: int, producer: tuple[int, int, int]
) -> None:
    attributes, producer_id, producer_epoch = producer
    data = native.own_batch(records, base, epoch, NOW_MS, producer_id, producer_epoch, attributes)
    accepted = validate(
        memoryview(data), CONFIG, base=base, epoch=epoch, now_ms=NOW_MS, produce_version=11, client=False
    )
    assert b"".join(accepted.parts) == data
    assert (accepted.base, accepted.last, accepted.max_timestamp) == (base, base + len(records) - 1, NOW_MS)
    assert [(one.key, one.value) for one in batch.iterate(data)] == records


def test_without_the_crate_python_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [(b"k", b"v"), (b"gone", None)], 5, 2, NOW_MS, -1, -1, PLAIN
    built = native.own_batch(*arguments)
    monkeypatch.setattr(native, "_crate", lambda: None)
    assert native.own_batch(*arguments) == built
