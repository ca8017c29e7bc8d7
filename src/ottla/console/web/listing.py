"""A table whose data is not in snapshots: read when the page opens, and again after each change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from nicegui import run, ui

from ottla.client.failure import Failed, Refused
from ottla.console.web.table import Column, Paged
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
RETRY_S: Final = 5.0


class Listing(Generic[T]):
    def __init__(
        self,
        columns: Sequence[Column[T]],
        read: Callable[[], list[T]],
        *,
        what: str,
        nothing: str,
        without: str = "",
        **settings: Any,
    ) -> None:
        """`read` runs in a thread. `nothing` is said once it is known that there are none, and `without` if the cluster
        has its security disabled. `settings` are those of `Paged`.
        """
        self._read = read
        self._what = what
        self._nothing = nothing
        self._without = without
        self._items: list[T] = []
        self._known = False
        self.accepts: Callable[[T], bool] = lambda one: True
        self.table: Paged[T] = Paged(columns, self._list_items, nothing="Reading…", **settings)
        self._trouble = ui.label().classes("o-warn o-wrap")
        ui.timer(0.05, self.load, once=True)
        ui.timer(RETRY_S, self._retry)

    def _list_items(self) -> list[T]:
        return [one for one in self._items if self.accepts(one)]

    async def _retry(self) -> None:
        """Try again: the broker may answer now."""
        if not self._known:
            await self.load()

    async def load(self) -> None:
        try:
            self._items = await run.io_bound(self._read) or []
        except Failed as error:
            if self._without and isinstance(error, Refused) and error.code == ErrorCode.SECURITY_DISABLED:
                self.table.say_nothing(self._without)
                return
            if not self._known:
                self.table.say_nothing("Not known.")
            self._trouble.set_text(f"{self._what} could not be read: {error}")
            return
        self._known = True
        self._trouble.set_text("")
        self.table.say_nothing(self._nothing)
        self.table.update()
