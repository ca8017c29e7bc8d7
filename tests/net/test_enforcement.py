"""Quotas of hosts: which host names are resolved while the broker runs."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from ottla.net.enforcement import resolve
from ottla.quota.limits import Limits

if TYPE_CHECKING:
    import pytest


def test_a_slow_name_does_not_delay_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        limits = Limits()
        limits.hosts = {"quick.host": 1.0, "slow.host": 1.0}

        async def look_up(host: str, port: Any) -> list[Any]:
            if host == "slow.host":
                await asyncio.get_running_loop().create_future()
            return [(None, None, None, "", ("10.0.0.2", 0))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        task = asyncio.create_task(resolve(limits))
        await asyncio.sleep(0)
        task.cancel()  # as the next change of a quota does
        await asyncio.wait([task])
        assert limits.find_address("10.0.0.2") == 1.0

    asyncio.run(scene())


def test_known_addresses_hold_until_the_new_ones_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        limits = Limits()
        limits.hosts = {"a.host": 1.0, "gone.host": 1.0}
        limits.resolved = {"10.0.0.1": "a.host", "10.0.0.3": "gone.host"}

        async def look_up(host: str, port: Any) -> list[Any]:
            assert limits.find_address("10.0.0.1") == 1.0, "still"
            if host == "gone.host":
                raise socket.gaierror
            return [(None, None, None, "", ("10.0.0.2", 0))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        await resolve(limits)
        assert limits.find_address("10.0.0.2") == 1.0
        assert limits.find_address("10.0.0.1") is None
        assert limits.find_address("10.0.0.3") is None

    asyncio.run(scene())
