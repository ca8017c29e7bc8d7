"""Records that do not fit into an exported table go to the dead-letter topic, each once, wherever the driver dies.

Rounds of the export run here without Spark: its tasks are called one after the other.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from compat.clients import Record
from compat.confluent import Confluent
from deltalake import DeltaTable
from process import Ottla
from spark import copies, filling

from ottla.client.cluster import Cluster
from ottla.client.failure import Failed
from ottla.spark import dead_letter
from ottla.spark.pipelines.export import pipeline
from ottla.spark.pipelines.export.delta_ledger import DeltaLedger
from ottla.spark.pipelines.export.exporting import NO_DAY
from ottla.spark.pipelines.export.ledger import FolderLedger
from ottla.spark.runner import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

BAD = b"\xff\xfe"
FAR_MS = 2**62  # beyond every calendar, as nanoseconds taken for milliseconds are
LATE_MS = 1_800_000_000_000_000  # microseconds taken for milliseconds: the year 59,000
_numbers = itertools.count()


class Killed(BaseException):
    """Raised where the process would be killed."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with Ottla(tmp_path_factory.mktemp("broker")) as running:
        yield running


class Exports:
    def __init__(self, broker: Ottla, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.topic, self.dead = f"records{next(_numbers)}", f"dead{next(_numbers)}"
        self.table = folder / "table"
        self.create()

    def create(self) -> None:
        filling.create(self.broker, self.topic, 2, message_timestamp_after_max_ms=f"{2**63 - 1}")

    def produce(self, *records: Record, partition: int = 0) -> None:
        client = Confluent(self.broker.bootstrap)
        client.produce(self.topic, list(records), partition=partition)
        client.close()

    def run(self, **options: str) -> None:
        given = {"topics": self.topic, "path": str(self.table), "dead.letter": self.dead, **options}
        run = Run(pipeline=pipeline.PIPELINE, bootstrap=self.broker.bootstrap, folder=self.folder, once=True,
                  options=given)  # fmt: skip
        run.__dict__["spark"] = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
        pipeline.PIPELINE.run(run)

    def rows(self) -> list[dict[str, Any]]:
        if (self.table / "_delta_log").exists():
            found = DeltaTable(self.table).to_pyarrow_table()
        else:
            found = ds.dataset(self.table, partitioning="hive").to_table()
        rows: list[dict[str, Any]] = found.drop_columns("timestamp").to_pylist()  # Python knows no late ones
        return sorted(rows, key=lambda row: (row["partition"], row["offset"]))

    def values(self) -> list[Any]:
        return [row["value"] for row in self.rows()]

    def letters(self) -> list[tuple[bytes | None, bytes | None, dict[str, bytes | None]]]:
        found = copies.content(self.broker, self.dead)
        return [(key, value, dict(headers)) for some in found.values() for _, key, value, headers in some]

    def places(self) -> list[tuple[int, int]]:
        """Partition and offset of the records that the letters are about."""
        return sorted(
            (int(told[dead_letter.PARTITION] or b""), int(told[dead_letter.OFFSET] or b""))
            for _, _, told in self.letters()
        )


def in_turn(spark: object, work: Sequence[Any], function: Callable[[Any], Any]) -> list[Any]:
    return [function(one) for one in work]


@pytest.fixture
def exports(broker: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exports:
    monkeypatch.setattr(pipeline, "spread", in_turn)
    return Exports(broker, tmp_path)


def record(value: bytes | None, key: bytes | None = b"k", moment: int = filling.NOW_MS) -> Record:
    return Record(moment, key, value, (("own", b"1"),))


def test_what_is_no_text_is_put_aside_with_the_reason(exports: Exports) -> None:
    exports.produce(record("größer".encode()), record(BAD), record(None))
    exports.produce(record(b"y", key=BAD), record(b"z"), partition=1)
    exports.run(key="string", value="string", headers="false")
    assert exports.values() == ["größer", None, "z"]
    assert exports.places() == [(0, 1), (1, 0)]
    found = {value: (key, told) for key, value, told in exports.letters()}
    key, told = found[BAD]
    assert (key, told["own"], told[dead_letter.STAGE]) == (b"k", b"1", b"decode")
    assert told[dead_letter.TOPIC] == exports.topic.encode()
    assert told[dead_letter.REASON] == b"its value is not text in UTF-8"
    assert found[b"y"][1][dead_letter.REASON] == b"its key is not text in UTF-8"
    assert not list(exports.table.rglob("*.letters"))
    exports.run(key="string", value="string", headers="false")
    assert len(exports.letters()) == 2, "nothing was new"
    exports.produce(record(BAD), record(BAD))
    exports.run(key="string", value="string", headers="false")
    assert exports.places() == [(0, 1), (0, 3), (0, 4), (1, 0)], "a split without a row for the table"
    assert len(exports.rows()) == 3


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_driver_that_dies_between_the_two_commits(
    exports: Exports, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """Letters are ahead of the table then; the next driver has more records, and reads some of them again."""
    options = {"value": "string", "format": format, "name": exports.topic}

    def die(*given: object) -> None:
        raise Killed

    exports.produce(record(b"a"), record(BAD), record(b"b"))
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(DeltaLedger if format == "delta" else FolderLedger, "commit", die)
            with pytest.raises(Killed):
                exports.run(**options)
    assert exports.places() == [(0, 1)]
    exports.produce(record(BAD), record(b"c"))
    exports.run(**options)
    assert exports.places() == [(0, 1), (0, 3)]
    assert exports.values() == ["a", "b", "c"]


def test_a_driver_that_was_replaced_commits_nothing(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver fences it while it writes its letters."""
    from ottla.client.transaction import identify
    from ottla.spark.pipelines.export import letters

    exports.produce(record(b"a"), record(BAD))
    real, fenced = letters.add_offsets, []

    def after_a_fence(cluster: Cluster, identity: Any, *given: Any) -> None:
        fenced.append(identify(cluster, identity.transactional_id, timeout_ms=60_000))
        real(cluster, identity, *given)

    with monkeypatch.context() as patched:
        patched.setattr(letters, "add_offsets", after_a_fence)
        with pytest.raises(Failed):
            exports.run(value="string")
    assert fenced
    assert exports.letters() == []
    assert not list(exports.table.glob("*.parquet"))
    exports.run(value="string")
    assert exports.places() == [(0, 1)]
    assert exports.values() == ["a"]


def test_times_that_have_no_day(exports: Exports) -> None:
    exports.produce(record(b"a"), record(b"late", moment=LATE_MS), record(b"far", moment=FAR_MS), record(b"b"))
    exports.run(partition="day")
    assert exports.values() == [b"a", b"b"]
    reasons = {value: (told[dead_letter.REASON] or b"").decode() for _, value, told in exports.letters()}
    assert "beyond the year 9999" in reasons[b"late"]
    assert "beyond the year 294246" in reasons[b"far"]


def test_without_a_topic_they_end_the_run(exports: Exports) -> None:
    exports.produce(record(b"a"), record(b"late", moment=LATE_MS))
    with pytest.raises(Failed, match=r"a timestamp between offsets 0 and 1 is beyond the year 9999.*partition=none"):
        exports.run(partition="day", **{"dead.letter": ""})
    exports.run(**{"dead.letter": ""})
    assert exports.values() == [b"a", b"late"]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_record_without_a_timestamp_has_a_folder(exports: Exports, format: str) -> None:
    exports.topic = f"timeless-{format}"
    filling.timeless(exports.broker, exports.topic)
    exports.run(partition="day", format=format, name=exports.topic)
    days = [str(row["day"]) for row in exports.rows()]
    assert days == ["None", "1970-01-01", "None", "None", "1970-01-01", "None"]
    assert (exports.table / f"day={NO_DAY}").is_dir()
    with Cluster(exports.broker.bootstrap) as cluster:
        assert exports.dead in cluster.topics()
    assert exports.letters() == []


def test_a_pattern_never_means_the_dead_letters(exports: Exports) -> None:
    exports.produce(record(BAD), record(b"a"))
    for _ in range(3):
        exports.run(topics=f"({exports.topic}|{exports.dead})", value="string")
    assert exports.values() == ["a"]
    assert exports.places() == [(0, 0)]
    with pytest.raises(Failed, match=f"topic {exports.dead} cannot be both exported and the dead-letter topic"):
        exports.run(topics=f"{exports.topic},{exports.dead}", value="string")


def test_a_topic_made_anew_has_letters_of_its_own(exports: Exports) -> None:
    exports.produce(record(BAD), record(BAD))
    exports.run(value="string")
    client = Confluent(exports.broker.bootstrap)
    client.delete(exports.topic)
    client.close()
    exports.create()
    exports.produce(record(BAD), record(b"a"))
    exports.run(value="string", failOnDataLoss="false")
    assert exports.places() == [(0, 0), (0, 0), (0, 1)]
    assert exports.values() == ["a"]
