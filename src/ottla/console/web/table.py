"""A table whose rows stay on the server: the browser gets only one page of them.

Cells are text nodes, so that markup in keys, names and values is shown, never executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from nicegui import ui

from ottla.console.web import units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nicegui.events import GenericEventArguments

SIZES: Final = [10, 25, 50, 100]
SEARCH_MAX: Final = 200
CELL: Final = """<q-td :props="props"><a v-if="props.row[props.col.name+'__link']" class="o-link"
 :href="props.row[props.col.name+'__link']">{{ props.value }}</a><span v-else
 :class="props.row[props.col.name+'__tone']">{{ props.value }}</span></q-td>"""
NOTHING: Final = '<div class="full-width text-center o-soft q-pa-md">{{ props.message }}</div>'
# Links go to pages of the console; the server builds them from quoted parts.

T = TypeVar("T")


@dataclass(frozen=True)
class Column(Generic[T]):
    label: str
    show: Callable[[T], str]
    sort: Callable[[T], Any] | None = None
    right: bool = False
    wide: bool = False  # hidden on phones
    grow: bool = False  # takes the remaining width; its text is cut off
    link: Callable[[T], str] | None = None
    tone: Callable[[T], str] | None = None


def numeric(
    label: str,
    value: Callable[[T], float | None],
    show: Callable[[Any], str] = units.number,
    *,
    wide: bool = False,
    tone: Callable[[T], str] | None = None,
) -> Column[T]:
    """A column of right-aligned numbers; unknown ones are sorted as 0."""
    return Column(label, lambda one: show(value(one)), lambda one: value(one) or 0, right=True, wide=wide, tone=tone)


class Paged(Generic[T]):
    def __init__(
        self,
        columns: Sequence[Column[T]],
        items: Callable[[], Sequence[T]],
        *,
        key: Callable[[T], str],
        find: Callable[[T], str] | None = None,
        size: int = 25,
        sort: int = 0,
        descending: bool = False,
        selection: bool = False,
        hint: str = "Search",
        nothing: str = "Nothing here.",
        on_click: Callable[[T], Any] | None = None,
        mark: str = "table",
        tools: Callable[[], Any] | None = None,
    ) -> None:
        self._columns = columns
        self._items = items
        self._key = key
        self._find = find
        self._text = ""
        self._total = 0
        self._shown: dict[str, T] = {}
        self._chosen: dict[str, T] = {}
        self.page, self.size, self.sort, self.descending = 1, size, sort, descending
        with ui.row().classes("items-center w-full gap-3 q-mb-xs") as bar:
            self._controls(find is not None, hint, mark)
            if tools is not None:
                tools()
        bar.set_visibility(find is not None or tools is not None)
        self.table = ui.table(
            rows=[],
            columns=[describe(place, column) for place, column in enumerate(columns)],
            row_key="__key",
            pagination={"page": 1, "rowsPerPage": size, "rowsNumber": 0, "sortBy": str(sort), "descending": descending},
            selection="multiple" if selection else None,
        )
        self.table.props["rows-per-page-options"] = SIZES
        self.table.props["no-data-label"] = nothing
        self.table.add_slot("no-data", NOTHING)
        self.table.props("binary-state-sort flat rows-per-page-label=Rows").classes("w-full").props(f"data-mark={mark}")
        self.table.add_slot("body-cell", CELL)
        self.table.on("request", self._request, ["pagination"])
        self.table.on_pagination_change(self._restore)
        if selection:
            self.table.on_select(self._select)
        if on_click is not None:
            self.table.on("rowClick", lambda event: self._click(event, on_click), [[], ["__key"], None])
            self.table.classes("cursor-pointer")
        self.update()

    def _controls(self, search: bool, hint: str, mark: str) -> None:
        if search:
            ui.input(placeholder=hint, on_change=lambda event: self._search(str(event.value or ""))).props(
                f"dense outlined clearable debounce=250 maxlength={SEARCH_MAX}"
            ).style("width:320px;max-width:100%").props(f"data-mark={mark}-search")

    def say_nothing(self, text: str) -> None:
        """What stands in place of rows while there are none."""
        self.table.props["no-data-label"] = text
        self.table.update()

    @property
    def chosen(self) -> list[T]:
        return list(self._chosen.values())

    def clear(self) -> None:
        self._chosen.clear()
        self.table.selected = []

    def _select(self, event: Any) -> None:
        keys = {row.get("__key") for row in self.table.selected}
        self._chosen = {key: one for key, one in {**self._chosen, **self._shown}.items() if key in keys}

    def _click(self, event: GenericEventArguments, on_click: Callable[[T], Any]) -> Any:
        found = next((each["__key"] for each in event.args if isinstance(each, dict) and "__key" in each), None)
        one = self._shown.get(found) if isinstance(found, str) else None
        return on_click(one) if one is not None else None

    def _search(self, text: str) -> None:
        self._text = text[:SEARCH_MAX].lower()
        self.page = 1
        self.update()

    def _request(self, event: GenericEventArguments) -> None:
        asked = event.args.get("pagination") if isinstance(event.args, dict) else None
        if not isinstance(asked, dict):
            return
        page, size, sort = asked.get("page"), asked.get("rowsPerPage"), asked.get("sortBy")
        self.page = page if isinstance(page, int) and page > 0 else 1
        self.size = size if isinstance(size, int) and size in SIZES else self.size
        if isinstance(sort, str) and sort.isdecimal() and int(sort) < len(self._columns):
            self.sort = int(sort)
        self.descending = bool(asked.get("descending"))
        self.update()

    def _restore(self, event: Any) -> None:
        """A browser may repeat its first state after a newer one was sent: then send the newer one again."""
        told = event.value.get("rowsNumber") if isinstance(event.value, dict) else None
        if told != self._total:
            self.update()

    def update(self) -> None:
        """Show the current items."""
        items = self._items()
        if self._text and self._find is not None:
            find = self._find
            items = [one for one in items if self._text in find(one).lower()]
        order = self._columns[self.sort].sort
        if order is not None:
            items = sorted(items, key=order, reverse=self.descending)
        last = max(1, -(-len(items) // self.size))
        self.page = min(self.page, last)
        page = items[(self.page - 1) * self.size : self.page * self.size]
        self._shown = {self._key(one): one for one in page}
        rows = [self._row(key, one) for key, one in self._shown.items()]
        self._total = len(items)
        state = {
            "page": self.page,
            "rowsPerPage": self.size,
            "rowsNumber": len(items),
            "sortBy": str(self.sort),
            "descending": self.descending,
        }
        if rows != self.table.rows or state != self.table.props["pagination"]:
            self.table.props["pagination"] = state
            self.table.props["hide-bottom"] = 0 < len(items) <= SIZES[0]
            self.table.rows = rows
            self.table.update()

    def _row(self, key: str, one: T) -> dict[str, str]:
        row = {"__key": key}
        for place, column in enumerate(self._columns):
            row[str(place)] = column.show(one)
            if column.link is not None and (link := column.link(one)):
                row[f"{place}__link"] = link
            if column.tone is not None:
                row[f"{place}__tone"] = column.tone(one)
        return row


def describe(place: int, column: Column[Any]) -> dict[str, Any]:
    """A column in the format of Quasar's table."""
    return {
        "name": str(place),
        "field": str(place),
        "label": column.label,
        "sortable": column.sort is not None,
        "align": "right" if column.right else "left",
        "classes": "o-wide " * column.wide + "o-grow" * column.grow,
        "headerClasses": "o-wide" if column.wide else "",
    }
