"""Applies quotas on a running broker: measures requests and connections if there are quotas for them.

Without quotas, neither the dispatcher nor the listeners use this module.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.config.option import INT_MAX
from ottla.net.connecting import ConnectionRates
from ottla.net.throttling import Throttling
from ottla.quota.limits import find_address
from ottla.quota.quotas import Quotas
from ottla.quota.rate import Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.clock import Clock
    from ottla.config import BrokerConfig
    from ottla.net.dispatch import Dispatch
    from ottla.net.listener import Admission, Listener
    from ottla.quota.limits import Limits

    Stored = Mapping[str, Mapping[str, str]]

log = logging.getLogger("ottla.net")


class Enforcement:
    def __init__(self, config: BrokerConfig, clock: Clock, admission: Admission, listeners: Sequence[Listener]) -> None:
        window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutations = Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        self.quotas = Quotas(window, mutations)
        protected = config.inter_broker.name if len(config.opened) > 1 else ""
        own = protected if config.inter_broker_listener_name is not None else ""  # otherwise clients share it
        self._throttling = Throttling(self.quotas, clock, brokers_only=own)
        self._rates = ConnectionRates(self.quotas, clock, window, protected)
        self._admission = admission
        self._listeners = listeners
        self._resolving: asyncio.Task[None] | None = None

    def follow(self, dispatch: Dispatch, users: Stored, others: Stored) -> None:
        """Apply the stored quotas of these entities from now on."""
        limits = self.quotas.limits
        if not limits.change(users, others):
            return
        dispatch.measure(self._throttling if limits.of_clients else None)
        for listener in self._listeners:
            self._throttling.release(listener.connections)
        self.close()
        if limits.hosts:
            self._resolving = asyncio.get_running_loop().create_task(resolve(limits))
        self._set_rates()

    def limit_connections(self, rate_max: int) -> None:
        """Limit the rate of new connections per second, over all addresses."""
        self._rates.rate_max = rate_max if rate_max < INT_MAX else None
        self._set_rates()

    def _set_rates(self) -> None:
        limited = self._rates.rate_max is not None or self.quotas.limits.of_addresses
        self._admission.rates = self._rates if limited else None

    def close(self) -> None:
        if self._resolving is not None:
            self._resolving.cancel()
            self._resolving = None


async def resolve(limits: Limits) -> None:
    """Resolve the host names that quotas use. Until then the addresses found before stay in use."""
    resolved: dict[str, str] = {}
    for host in list(limits.hosts):
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None)
        except (OSError, UnicodeError) as error:
            log.warning("cannot resolve the host of a quota, it is not enforced: %s", error, extra={"host": host})
            continue
        for *_, address in found:
            resolved[find_address(str(address[0])) or host] = host
    limits.resolved = resolved
