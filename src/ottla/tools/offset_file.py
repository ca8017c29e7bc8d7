"""Committed offsets as CSV or JSON text, to store, edit and import again.

CSV    topic,partition,offset   one per line, no header: the format of kafka-consumer-groups
       group,topic,partition,offset   its format for several groups
JSON   [{"topic": "t", "partition": 0, "offset": 17, "metadata": "m"}, ...]   `metadata` is optional;
       with several groups, each entry also has a "group"
"""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from ottla.tools.lag import Commit, Place


def to_csv(commits: Mapping[Place, Commit]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((*place, commit.offset) for place, commit in commits.items())
    return text.getvalue()


def to_objects(commits: Mapping[Place, Commit]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": index, "offset": commit.offset}
        | ({"metadata": commit.metadata} if commit.metadata else {})
        for (topic, index), commit in commits.items()
    ]


def read_groups(text: str) -> dict[str, dict[Place, Commit]]:
    """The offsets of every group in the file. Raises ValueError with a message for the user."""
    return {name: read(text, name) for name in group_names(text)}


def group_names(text: str) -> list[str]:
    if text.lstrip()[:1] == "[":
        found = json.loads(text)
        names = [entry["group"] for entry in found if isinstance(entry, dict) and isinstance(entry.get("group"), str)]
        if len(names) < len(found):
            raise ValueError('every entry needs a "group"')
    else:
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
        if any(len(row) != 4 for row in rows):
            raise ValueError("expected group,topic,partition,offset in every line")
        names = [row[0].strip() for row in rows]
    return list(dict.fromkeys(names))


def read(text: str, group: str) -> dict[Place, Commit]:
    """The offsets of one group; others are skipped. Raises ValueError with a message for the user."""
    found: dict[Place, Commit] = {}
    for number, (place, commit) in enumerate(
        objects(text, group) if text.lstrip()[:1] == "[" else lines(text, group), 1
    ):
        if place in found:
            raise ValueError(f"entry {number}: {place[0]} partition {place[1]} is a duplicate")
        if place[1] < 0 or commit.offset < 0:
            raise ValueError(f"entry {number}: partition and offset must not be negative")
        found[place] = commit
    return found


def lines(text: str, group: str) -> list[tuple[Place, Commit]]:
    found = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        if len(row) not in (3, 4):
            raise ValueError(f"line {number}: expected topic,partition,offset")
        if len(row) == 4 and row.pop(0).strip() != group:
            continue
        topic, index, offset = (part.strip() for part in row)
        if not (topic and index.isdecimal() and offset.isdecimal()):
            raise ValueError(f"line {number}: expected topic,partition,offset")
        found.append(((topic, int(index)), Commit(int(offset))))
    return found


def objects(text: str, group: str) -> list[tuple[Place, Commit]]:
    found = []
    for number, entry in enumerate(json.loads(text), 1):
        match entry:
            case {"group": str(other)} if other != group:
                continue
            case {"topic": str(topic), "partition": int(index), "offset": int(offset)}:
                metadata = entry.get("metadata")
            case _:
                raise ValueError(f"entry {number}: expected topic, partition and offset")
        if not isinstance(metadata, str | None):
            raise ValueError(f"entry {number}: metadata must be a string")
        found.append(((topic, index), Commit(offset, metadata)))
    return found
