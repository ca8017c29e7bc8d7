"""The console as one object: watch, history and actions. Pages get only this object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.client.security import PLAIN
from ottla.console.actions import Actions
from ottla.console.history import MEMORY, History
from ottla.console.watch.gathering import EVERY_S
from ottla.console.watch.graph import Writers
from ottla.console.watch.scraping import Scraping
from ottla.console.watch.watching import Watch

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.console.watch.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Options:
    bootstrap: str
    security: Security = PLAIN
    host: str = "127.0.0.1"
    port: int = 8190
    token: str | None = None
    user: str | None = None
    password: str | None = None
    allow_changes: bool = False
    hosts: tuple[str, ...] = ()
    history: str = MEMORY
    registry: str | None = None
    zookeeper: str | None = None
    every_s: float = EVERY_S
    metrics: tuple[str, ...] = field(default=())


class Console:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.history = History(options.history)
        self.writers = Writers()
        self.scraping = Scraping(options.metrics)
        self.watch = Watch(options.bootstrap, options.security, every_s=options.every_s, on_snapshot=self._note)
        self.actions = Actions(
            options.bootstrap, options.security, self.history, allowed=options.allow_changes, changed=self.watch.hurry
        )

    def start(self) -> None:
        self.watch.start()
        self.scraping.start()

    def _note(self, snapshot: Snapshot) -> None:
        self.history.note(snapshot)
        self.writers.note(snapshot)
        self.actions.note_moves(len(snapshot.moves), snapshot.problem is None)

    def close(self) -> None:
        self.watch.close()
        self.scraping.close()
        self.history.close()
