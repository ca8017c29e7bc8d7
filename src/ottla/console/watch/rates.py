"""Rates of growing counts: the change over the last seconds, from a few samples per name."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 12.0
SAMPLES_MAX: Final = 8


class Rates:
    """The rates of many names. A falling count starts over: the topic was recreated, or the group reset."""

    def __init__(self, *, falls: bool = False) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}
        self._falls = falls  # the count may fall, as a lag does

    def note(self, name: str, moment: float, count: int) -> float:
        samples = self._samples.get(name)
        if samples is None:
            samples = self._samples[name] = deque(maxlen=SAMPLES_MAX)
        if samples and count < samples[-1][1] and not self._falls:
            samples.clear()
        samples.append((moment, count))
        while len(samples) > 2 and samples[0][0] < moment - WINDOW_S:
            samples.popleft()
        since, before = samples[0]
        return (count - before) / (moment - since) if moment > since else 0.0

    def keep(self, names: set[str]) -> None:
        """Forget all others: a recreated name starts empty."""
        for name in self._samples.keys() - names:
            del self._samples[name]
