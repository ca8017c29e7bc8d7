"""One more quota, or one more user, costs the same however many there are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.clock import SystemClock
from ottla.cluster.metadata import Metadata
from ottla.cluster.sqlite_store import MEMORY, SqliteStore
from ottla.cluster.standalone import Standalone
from ottla.config import load
from ottla.net import listener
from ottla.net.enforcement import Enforcement
from ottla.quota import limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

COUNT = 300
RATE = "producer_byte_rate"


class Dispatch:
    def measure(self, throttling: object) -> None:
        pass


class Connections(dict[Any, None]):
    """Counts how often all connections were iterated."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()


class Listener:
    def __init__(self) -> None:
        self.connections = Connections()


def test_a_change_looks_at_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    decode = limits.decode_values

    def counted(pairs: Any, keys: Iterable[str]) -> Any:
        looks.append(pairs)
        return decode(pairs, keys)

    monkeypatch.setattr(limits, "decode_values", counted)

    async def story() -> None:
        store = SqliteStore(MEMORY)
        await store.open()
        metadata = Metadata(load({}), SystemClock())
        controller = Standalone(store, metadata, SystemClock())
        await controller.start({"PLAINTEXT": ("localhost", 9092)})
        here = Listener()
        enforcement = Enforcement(load({}), SystemClock(), listener.Admission(), [here])  # type: ignore[list-item]
        metadata.subscribe(lambda old, new: enforcement.follow(Dispatch(), *new.entities_changed_since(old)))  # type: ignore[arg-type]
        for number in range(COUNT):
            await controller.alter_user(f"u{number}", {"SCRAM-SHA-256": "salt=x"})
            await controller.alter_entity(f"clients/c{number}", {RATE: "5"})
        assert len(looks) <= 3 * 2 * COUNT
        looks.clear()
        here.connections.walks = 0
        await controller.alter_user("u5", {"SCRAM-SHA-256": "salt=y"})
        assert (len(looks), here.connections.walks) == (1, 0), "no quota has changed"
        await controller.alter_user("u5", {RATE: "7"})
        assert (len(looks), here.connections.walks) == (2, 1)
        assert enforcement.quotas.limits.find(RATE, "u5", "x") == (7, ("u5", None))
        await controller.alter_user("u5", {RATE: None})
        assert enforcement.quotas.limits.find(RATE, "u5", "c1") == (5, (None, "c1"))
        await store.close()

    asyncio.run(story())
