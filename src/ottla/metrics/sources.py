"""What the collectors read: the parts of the broker that have started so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config import BrokerConfig
    from ottla.handlers.call import Parts
    from ottla.log.store import LogStore
    from ottla.metrics.loop_lag import LoopLag
    from ottla.metrics.session import StoreSession
    from ottla.net.dispatch import Dispatch
    from ottla.net.listener import Listener
    from ottla.replica.isr import Proposals


@dataclass(kw_only=True)
class Sources:
    config: BrokerConfig
    store: LogStore
    lag: LoopLag
    missing: Callable[[], list[str]]  # what keeps the broker from being ready
    listeners: list[Listener] = field(default_factory=list)
    session: StoreSession | None = None  # only in a cluster
    proposals: Proposals | None = None
    parts: Parts | None = None  # this and the next: set when the logs are open
    dispatch: Dispatch | None = None
