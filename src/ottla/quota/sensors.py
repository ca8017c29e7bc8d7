"""What each client has used of one quota, in bounded memory.

A sensor that was not used for an hour is dropped, as in Kafka. There are at most `SENSORS_MAX`; beyond that the least
recently used one is dropped. Client ids may be long, and clients choose them: for long ones only a digest is kept.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

SENSORS_MAX: Final = 20_000
UNUSED_MS_MAX: Final = 3600 * 1000
NAME_SIZE_MAX: Final = 100

Sensor = TypeVar("Sensor")


class Sensors(Generic[Sensor]):
    def __init__(self, make: Callable[[], Sensor], sensors_max: int = SENSORS_MAX) -> None:
        self._make = make
        self._sensors_max = sensors_max
        self._known: dict[Hashable, tuple[int, Sensor]] = {}  # with the time of the last use; the most recent is last

    def __len__(self) -> int:
        return len(self._known)

    def get(self, owner: tuple[str | None, ...], now_ms: int) -> Sensor:
        """The sensor of an owner, marked as used now."""
        key = tuple(map(shorten, owner))
        found = self._known.pop(key, None)
        sensor = self._make() if found is None else found[1]
        self._known[key] = now_ms, sensor
        self._forget(now_ms)
        return sensor

    def _forget(self, now_ms: int) -> None:
        """Drop up to two sensors, one more than was added: they become fewer over time, never many at once."""
        for _ in range(2):
            key = next(iter(self._known))
            if len(self._known) <= self._sensors_max and now_ms - self._known[key][0] < UNUSED_MS_MAX:
                return
            del self._known[key]


def shorten(name: str | None) -> str | bytes | None:
    if name is None or len(name) <= NAME_SIZE_MAX:
        return name
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
