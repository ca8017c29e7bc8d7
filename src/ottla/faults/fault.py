"""One fault: which API, how often, and what happens to the request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from ottla.errors import ErrorCode
from ottla.wire import apis

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Fault:
    key: int  # API key
    times: int = 1
    code: int = 0  # the request gets this error and is not carried out
    seconds: float = 0.0  # the request is carried out at once, but answered this much later
    drop: bool = False  # the connection is closed instead of sending a response
    handled: bool = False  # with `drop`: the request is carried out first, so only the response is lost

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"times={self.times}: expected 1 or more")
        if self.seconds < 0:
            raise ValueError(f"seconds={self.seconds}: expected 0 or more")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Self:
        return cls(**facts)


def find_api(name: str) -> int:
    """The key of an API by Kafka's name, case-insensitive: `Produce`, `OffsetCommit`."""
    keys = {api.name.lower(): key for key, api in apis.BY_KEY.items()}
    found = keys.get(name.lower())
    if found is None:
        near = closest(name.lower(), keys)
        hint = f": did you mean {apis.BY_KEY[keys[near]].name}?" if near else ", such as Produce, Fetch, JoinGroup"
        raise ValueError(f"{name}: expected the name of an API{hint}")
    return found


def find_code(code: int | str) -> int:
    """A Kafka error code, by number or by name (case-insensitive)."""
    try:
        found = ErrorCode(code) if isinstance(code, int) else ErrorCode[code.upper()]
    except (KeyError, ValueError):
        near = closest(str(code).upper(), ErrorCode.__members__)
        hint = f": did you mean {near}?" if near else ", by number or name, such as NOT_LEADER_OR_FOLLOWER"
        raise ValueError(f"{code}: expected a Kafka error code{hint}") from None
    if found is ErrorCode.NONE:
        raise ValueError("NONE is not an error")
    return int(found)


def closest(word: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # imported late: only needed for wrong names

    return next(iter(get_close_matches(word, known, 1)), None)
