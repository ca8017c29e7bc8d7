"""Data folders seen from outside: the output of Apache Kafka's tools, and what a broker serves from them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

import judge
from compat.raw import Batch, Raw, list_offset, read_all

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DUMP = "org.apache.kafka.tools.DumpLogSegments"
# What the tool prints, above a list of places, when a log and its indexes do not agree.
COMPLAINTS = (
    "isvalid: false",
    "Mismatches in",
    "Non-consecutive offsets",
    "Found timestamp mismatch",
    "Found out of order timestamp",
    "index is corrupt",
    "Exception",
)


class Dump(NamedTuple):
    batches: int
    records: int
    entries: int  # of the offset indexes
    producers: int  # of the last snapshot


def dumped(partition: Path, *, holes: bool = False) -> Dump:
    """Run Kafka's dump over all files of a partition's folder; nothing in it may be bad. A compacted log has holes."""
    logs, indexes, times = (sorted(partition.glob(f"*.{suffix}")) for suffix in ("log", "index", "timeindex"))
    filled = [log for log in logs if log.stat().st_size]
    assert filled, "nothing to judge"
    for suffix, files in ((".index", indexes), (".timeindex", times)):
        assert {log.with_suffix(suffix) for log in filled} <= set(files), f"a segment without its {suffix}"
    deep = dump("--deep-iteration", "--skip-record-metadata", files=logs)
    complaints = [text for text in COMPLAINTS if not (holes and text.startswith("Non-consecutive"))]
    for option, files in (("--index-sanity-check", indexes), ("--index-sanity-check", times)):
        said = dump(option, files=files)
        for file in files:
            empty = f"{file} is empty." in said and file.stat().st_size == 0
            assert empty or f"{file} passed sanity check." in said, said
    entries = 0
    for files in (indexes, times):
        said = dump(files=files)
        assert not [text for text in complaints if text in said], said
        entries += len(re.findall(r"^offset: \d+ position: \d+$", said, re.MULTILINE))
    assert not [text for text in complaints if text in deep], deep
    counts = [int(count) for count in re.findall(r" count: (\d+) ", deep)]
    return Dump(len(counts), sum(counts), entries, snapshot_size(partition))


def snapshot_size(partition: Path) -> int:
    snapshots = sorted(partition.glob("*.snapshot"))
    return len(re.findall(r"^producerId: \d+", dump(files=snapshots[-1:]), re.MULTILINE)) if snapshots else 0


def dump(*options: str, files: Sequence[Path]) -> str:
    return judge.tool(DUMP, *options, "--files", ",".join(map(str, files))).out


class Content(NamedTuple):
    """Everything a broker serves of one partition."""

    start: int
    end: int
    batches: list[Batch]

    @property
    def records(self) -> int:
        return sum(batch.count for batch in self.batches)


def content(port: int, topic: str, partition: int = 0) -> Content:
    with Raw(port) as raw:
        start = list_offset(raw, topic, -2, partition=partition)
        end = list_offset(raw, topic, -1, partition=partition)
        return Content(start, end, read_all(raw, topic, partition=partition, start=start))


def meta(folder: Path) -> dict[str, str]:
    """meta.properties as pairs."""
    lines = (folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def topic_id(partition: Path) -> str:
    found = re.search(r"topic_id: (\S+)", (partition / "partition.metadata").read_text())
    assert found is not None
    return found[1]


def last_epoch(partition: Path) -> int:
    path = partition / "leader-epoch-checkpoint"
    return int(path.read_text().split()[-2]) if path.exists() else 0  # nothing was ever written in it


def znodes(data: Path, node_id: int) -> list[str]:
    """The znodes of a cluster that has the topics of a folder."""
    topics: dict[str, dict[int, Path]] = {}
    for folder in data.iterdir():
        if found := re.fullmatch(r"(.+)-(\d+)", folder.name):
            topics.setdefault(found[1], {})[int(found[2])] = folder
    words = ["/cluster/id", json.dumps({"version": "1", "id": meta(data)["cluster.id"]})]
    for topic, partitions in topics.items():
        described = {
            "partitions": {str(index): [node_id] for index in partitions},
            "topic_id": topic_id(partitions[0]),
            "adding_replicas": {},
            "removing_replicas": {},
            "version": 3,
        }
        words += [f"/brokers/topics/{topic}", json.dumps(described)]
        for index, folder in partitions.items():
            state = {
                "controller_epoch": 1,
                "leader": node_id,
                "version": 1,
                "leader_epoch": last_epoch(folder),
                "isr": [node_id],
            }
            words += [f"/brokers/topics/{topic}/partitions/{index}/state", json.dumps(state)]
    return words
