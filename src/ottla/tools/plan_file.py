"""The JSON files of kafka-reassign-partitions and kafka-leader-election: read strictly, and written.

topics       {"version": 1, "topics": [{"topic": "orders"}]}
plan         {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}
partitions   {"partitions": [{"topic": "orders", "partition": 0}]}
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.client.placement import Place, Placement
from ottla.tools.session import Failed

ANYWHERE = "any"  # in place of a log folder


def read_topics(path: Path) -> list[str]:
    match load(path):
        case {"topics": list(topics)} if all(isinstance(one, dict) and "topic" in one for one in topics):
            return list(dict.fromkeys(str(one["topic"]) for one in topics))
    raise Failed(f'{path}: expected {{"version": 1, "topics": [{{"topic": "NAME"}}, ...]}}')


def read_plan(path: Path) -> Placement:
    plan: Placement = {}
    for number, entry in enumerate(entries(path), 1):
        match entry:
            case {"topic": str(topic), "partition": int(index), "replicas": [int(), *_] as replicas} if all(
                type(one) is int for one in replicas
            ):
                refuse_folders(path, number, entry)
            case _:
                raise Failed(f"{path}: entry {number}: expected topic, partition and a list of replicas")
        if (topic, index) in plan:
            raise Failed(f"{path}: entry {number}: {topic} partition {index} is a duplicate")
        if len(set(replicas)) != len(replicas):
            raise Failed(f"{path}: entry {number}: {topic} partition {index} names a broker twice")
        plan[topic, index] = tuple(replicas)
    if not plan:
        raise Failed(f"{path}: no partitions in it")
    return plan


def refuse_folders(path: Path, number: int, entry: Mapping[str, Any]) -> None:
    if any(folder != ANYWHERE for folder in entry.get("log_dirs", ())):
        raise Failed(
            f'{path}: entry {number}: "log_dirs" other than "any" are not supported: brokers choose the folder'
        )


def read_partitions(path: Path) -> list[Place]:
    places: list[Place] = []
    for number, entry in enumerate(entries(path), 1):
        match entry:
            case {"topic": str(topic), "partition": int(index)}:
                places.append((topic, index))
            case _:
                raise Failed(f"{path}: entry {number}: expected topic and partition")
    return list(dict.fromkeys(places))


def plan_document(plan: Mapping[Place, Sequence[int]]) -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": index, "replicas": list(replicas), "log_dirs": [ANYWHERE] * len(replicas)}
            for (topic, index), replicas in sorted(plan.items())
        ],
    }


def write_plan(path: Path, plan: Mapping[Place, Sequence[int]]) -> None:
    try:
        path.write_text(json.dumps(plan_document(plan), indent=2) + "\n")
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from None


def entries(path: Path) -> list[Any]:
    match load(path):
        case {"partitions": list(found)}:
            return found
    raise Failed(f'{path}: expected {{"partitions": [...]}}')


def load(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise Failed(f"{path}: not JSON: {error}") from None
