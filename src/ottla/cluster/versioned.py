"""An immutable mapping with versions. Making a new version costs time in proportion to the change.

    first = Versioned({"a": 1})
    second = first.change({"b": 2})         first is still {"a": 1}
    second.keys_changed_since(first)        {"b"}

The newest version holds a dictionary. An older one holds the reverse of the next change, and looks up everything else
in the next version. So a change copies nothing, reading the newest costs one lookup, and reading an older one costs a
step for each version in between. Keep only the newest: an older version keeps all later ones alive. A second change of
an older version copies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

ABSENT: Any = object()  # in `_undo`: the next version has added this key
_numbers = count(1)


class Versioned(Mapping[K, V], Generic[K, V]):
    """`version` is unique and increasing; `grown` is the version that last added a key."""

    __slots__ = ("_items", "_newer", "_size", "_undo", "grown", "version")

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._items: dict[K, V] = dict(items)
        self._newer: Versioned[K, V] | None = None
        self._undo: dict[K, V] = {}
        self._size = len(self._items)
        self.version = self.grown = next(_numbers)

    def change(self, put: Mapping[K, V], gone: Iterable[K] = ()) -> Versioned[K, V]:
        """A new version without the keys in `gone` and with those in `put`."""
        # An empty one is not linked: it may be a constant, which would keep every later version alive.
        linked = self._newer is None and self._size > 0
        items = self._items if linked else self._whole()
        undo: dict[K, V] = {key: items[key] for key in gone}
        for key in undo:
            del items[key]
        newer: Versioned[K, V] = Versioned()
        newer.grown = self.grown
        for key, value in put.items():
            if key not in undo:
                undo[key] = items.get(key, ABSENT)
                if undo[key] is ABSENT:
                    newer.grown = newer.version
            items[key] = value
        newer._items, newer._size = items, len(items)
        if linked:
            self._items, self._newer, self._undo = {}, newer, undo
        return newer

    def keys_changed_since(self, older: Versioned[K, V]) -> set[K]:
        """The keys that differ from an older version, or did so in between."""
        changed: set[K] = set()
        version: Versioned[K, V] | None = older
        while version is not self:
            if version is None:  # no common history: compare
                mine, theirs = self._whole(), older._whole()
                return {key for key in {**mine, **theirs} if mine.get(key, ABSENT) is not theirs.get(key, ABSENT)}
            changed.update(version._undo)
            version = version._newer
        return changed

    @overload
    def get(self, key: K) -> V | None: ...

    @overload
    def get(self, key: K, default: V | T) -> V | T: ...

    def get(self, key: K, default: Any = None) -> Any:
        version = self
        while version._newer is not None:
            if key in version._undo:
                value = version._undo[key]
                return default if value is ABSENT else value
            version = version._newer
        return version._items.get(key, default)

    def __getitem__(self, key: K) -> V:
        value = self.get(key, ABSENT)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self.get(key, ABSENT) is not ABSENT  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._size

    # Iteration works on a copy, so later changes do not affect it.

    def __iter__(self) -> Iterator[K]:
        return iter(self._whole())

    def keys(self) -> KeysView[K]:
        return self._whole().keys()

    def values(self) -> ValuesView[V]:
        return self._whole().values()

    def items(self) -> ItemsView[K, V]:
        return self._whole().items()

    def __repr__(self) -> str:
        return f"Versioned({self._whole()!r})"

    def _whole(self) -> dict[K, V]:
        """The content of this version as a new dictionary."""
        steps = []
        version = self
        while version._newer is not None:
            steps.append(version._undo)
            version = version._newer
        whole = {**version._items}
        for undo in reversed(steps):
            for key, value in undo.items():
                if value is ABSENT:
                    del whole[key]
                else:
                    whole[key] = value
        return whole
