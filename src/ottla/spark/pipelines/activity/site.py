"""Generated traffic of a site: visitors come from somewhere, look at pages, click, search, buy or leave, and come back.

    {"at": "2026-01-31T12:00:00.123Z", "user": "u17", "type": "view", "page": "/tea", "referrer": "search.example"}
    {"at": ..., "user": "u17", "type": "search", "page": "/tea", "query": "green tea"}
    {"at": ..., "user": "u17", "type": "click", "page": "/tea/sencha", "target": "add to cart"}

The same seed and start generate the same events, in the order of their arrival. A few are up to a minute late, as from
a phone in a tunnel. Only the first view of a visit has a `referrer`.
"""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

LATE_S: Final = 60.0  # no event is later than this
LATE_SHARE: Final = 0.03
SHELVES: Final = {
    "/tea": ("/tea/sencha", "/tea/assam", "/tea/earl-grey", "/tea/rooibos"),
    "/coffee": ("/coffee/espresso", "/coffee/filter", "/coffee/decaf"),
    "/books": ("/books/the-castle", "/books/the-trial", "/books/amerika", "/books/letters-to-ottla"),
}
REFERRERS: Final = ("search.example", "news.example", "friends.example", "", "")
QUERIES: Final = ("green tea", "earl grey", "espresso", "decaf", "the castle", "letters", "gift", "tea & honey <loose>")
STAYS: Final = 0.7  # the others see one page and leave
ADD: Final = "add to cart"
BUY: Final = "buy"
# How busy each hour of a day is, from midnight on; the mean is one.
HOURS: Final = (3, 2, 1, 1, 1, 2, 4, 7, 9, 11, 12, 12, 13, 12, 11, 11, 11, 12, 14, 16, 17, 14, 9, 5)
MEAN: Final = sum(HOURS) / len(HOURS)


@dataclass
class Visit:
    user: str
    page: str
    cart: bool = False


class Site:
    """Visitors of a site. `events` is endless."""

    def __init__(self, seed: int, *, step_s: float, think_s: float = 20.0, rhythm: bool = False) -> None:
        """One event every `step_s`; a visitor acts about every `think_s`; `rhythm` makes nights quiet."""
        self._random = Random(seed)
        self._step_s = step_s
        self._rhythm = rhythm
        self._visits: list[Visit] = []
        self._active = max(3, round(think_s / step_s))
        self._users = max(200, 5 * self._active)

    def events(self, start: datetime) -> Iterator[dict[str, Any]]:
        held: list[tuple[float, int, dict[str, Any]]] = []  # late events, by time of arrival
        elapsed_s = 0.0
        number = 0
        while True:
            at = start + timedelta(seconds=elapsed_s)
            event = {"at": stamp(at), **self._next()}
            while held and held[0][0] <= elapsed_s:
                yield heapq.heappop(held)[2]
            if self._random.random() < LATE_SHARE:
                heapq.heappush(held, (elapsed_s + self._random.uniform(0, LATE_S), number, event))
            else:
                yield event
            number += 1
            busy = HOURS[at.hour] / MEAN if self._rhythm else 1.0
            elapsed_s += self._step_s / busy

    def _next(self) -> dict[str, Any]:
        """The next event: somebody comes, or a present visitor does something."""
        random = self._random
        if (len(self._visits) < self._active and random.random() < 0.5) or not self._visits:
            return self._arrival()
        index = random.randrange(len(self._visits))
        visit = self._visits[index]
        event = self._action(visit)
        leaves = 0.6 if visit.page == "/thanks" else 0.12
        if random.random() < leaves:
            self._visits[index] = self._visits[-1]
            self._visits.pop()
        return {"user": visit.user, **event}

    def _arrival(self) -> dict[str, Any]:
        random = self._random
        here = {visit.user for visit in self._visits} if self._active < 1000 else set()
        user = f"u{random.randrange(self._users)}"
        while user in here:
            user = f"u{random.randrange(self._users)}"
        page = random.choices(("/", *SHELVES), (6, 2, 1, 1))[0]
        if random.random() < STAYS:
            self._visits.append(Visit(user, page))
        return {"user": user, "type": "view", "page": page, "referrer": random.choice(REFERRERS)}

    def _action(self, visit: Visit) -> dict[str, Any]:
        random = self._random
        chance = random.random()
        if chance < 0.10:
            return {
                "type": "search",
                "page": visit.page,
                "query": random.choices(QUERIES, range(len(QUERIES), 0, -1))[0],
            }
        if visit.page == "/cart" and chance < 0.6:
            return self._view(visit, "/checkout")
        if visit.page == "/checkout" and chance < 0.8:
            if chance < 0.45:
                return {"type": "click", "page": visit.page, "target": BUY}
            return self._view(visit, "/thanks")
        if visit.page.count("/") == 2 and chance < 0.35:
            visit.cart = True
            return {"type": "click", "page": visit.page, "target": ADD}
        if visit.cart and chance < 0.5:
            return self._view(visit, "/cart")
        shelf = "/" + visit.page.split("/")[1]
        return self._view(visit, random.choice(SHELVES.get(shelf, tuple(SHELVES))))

    def _view(self, visit: Visit, page: str) -> dict[str, Any]:
        visit.page = page
        return {"type": "view", "page": page}


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def text(event: dict[str, Any]) -> str:
    return json.dumps(event)
