"""The history of a real cluster: what its clients observed, recorded as it happens, and checked afterwards.

Clients are threads; each line of the history is written atomically. `ottla.sim.history`, which the simulation uses too,
finds violations: lost, duplicate, reordered, skipped, inconsistent, invented, backwards, diverged.

    sent    producer topic partition value             before it is passed to the client
    acked   topic partition offset value               the cluster has acknowledged it; the offset may be unknown
    starts  reader topic partition offset              a reader begins there
    read    reader topic partition offset value
    high    reader topic partition offset              the high watermark that a reader got
    found   topic partition offset value               at the end: what is in the log
    bytes   topic partition broker hexadecimal         at the end: what a replica has below the high watermark
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from ottla.sim.history import History

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ottla.sim.history import Violation

Event = tuple[Any, ...]


class Recorder:
    """Keeps the events in order, and writes them to a file if there is one, for analysis."""

    def __init__(self, path: Path | None = None) -> None:
        self.events: list[Event] = []
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._file = None if path is None else path.open("w")

    def note(self, *event: Any) -> None:
        with self._lock:
            self.events.append(event)
            self._counts[event[0]] += 1
            if self._file is not None:
                self._file.write(json.dumps(event) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def count(self, kind: str) -> int:
        return self._counts[kind]


def load(path: Path) -> list[Event]:
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()]


def examine(events: Iterable[Event]) -> list[Violation]:
    """All violations in this history."""
    history = History()
    found: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
    replicas: dict[tuple[str, int], dict[str, bytes]] = defaultdict(dict)
    for kind, *rest in events:
        if kind == "sent":
            producer, topic, partition, value = rest
            history.note_sent(producer, (topic, partition), [value.encode()])
        elif kind == "acked":
            topic, partition, offset, value = rest
            history.note_acknowledged((topic, partition), offset, [value.encode()])
        elif kind == "starts":
            reader, topic, partition, offset = rest
            history.note_start(reader, (topic, partition), offset)
        elif kind == "read":
            reader, topic, partition, offset, value = rest
            history.note_read(reader, (topic, partition), offset, value.encode())
        elif kind == "high":
            reader, topic, partition, offset = rest
            history.note_high(reader, (topic, partition), offset)
        elif kind == "found":
            topic, partition, offset, value = rest
            found[topic, partition][offset] = value.encode()
        elif kind == "bytes":
            topic, partition, broker, content = rest
            replicas[topic, partition][str(broker)] = bytes.fromhex(content)
        else:
            raise ValueError(f"no such event: {kind}")
    for key in list(history.partitions):
        history.check_found(key, found[key])
    for key, contents in replicas.items():
        history.compare_replicas(key, contents)
    return history.violations
