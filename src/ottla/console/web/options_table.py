"""The options of a topic or a broker: value, source, documentation; editable if allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nicegui import ui

from ottla.console.web import units
from ottla.console.web.frame import attempt, user
from ottla.console.web.listing import Listing
from ottla.console.web.table import Column

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.wire.messages.configs import DescribeConfigsResourceResult as Option

SOURCES: Final = {
    1: "topic",
    2: "this broker, live",
    3: "all brokers, live",
    4: "file or command line",
    5: "default",
    6: "log level",
    7: "client metrics",
    8: "group",
}
DEFAULT: Final = 5
LIVE: Final = (1, 2, 3)


class OptionsTable:
    def __init__(self, console: Console, kind: int, name: str) -> None:
        self._console = console
        self._kind = kind
        self._name = name
        may = console.actions.allowed

        def tools() -> None:
            ui.switch("Only options that were set", on_change=lambda event: self._choose(bool(event.value))).props(
                "dense"
            )
            if may:
                ui.label("Click a row to change it.").classes("o-soft")

        self._listing: Listing[Option] = Listing(
            [
                Column("Option", lambda one: one.name, lambda one: one.name),
                Column("Value", show_value, show_value, tone=lambda one: "o-mono"),
                Column("Source", source, source, tone=lambda one: "o-note" if one.config_source in LIVE else ""),
                Column(
                    "Can change", lambda one: "no" if one.read_only else "yes", lambda one: one.read_only, wide=True
                ),
                Column(
                    "Meaning",
                    lambda one: units.brief(one.documentation or "", 200),
                    wide=True,
                    grow=True,
                    tone=lambda one: "o-soft",
                ),
            ],
            lambda: console.actions.options(kind, name),
            what="The options",
            key=lambda one: one.name,
            find=lambda one: f"{one.name} {one.value}",
            size=25,
            hint="Search options",
            nothing="No option is set here: all have their defaults.",
            on_click=self._edit if may else None,
            mark="options",
            tools=tools,
        )

    def _choose(self, only_set: bool) -> None:
        self._listing.accepts = lambda one: not only_set or one.config_source != DEFAULT
        self._listing.table.update()

    async def _edit(self, one: Option) -> None:
        if one.read_only:
            ui.notify(
                f"{one.name} can only be changed in the broker's configuration file, with a restart.", type="warning"
            )
            return
        who = user()
        with ui.dialog() as dialog, ui.card().classes("o-card").style("min-width:min(460px,90vw)"):
            ui.label(one.name).classes("o-head")
            ui.label(one.documentation or "").classes("o-soft o-wrap")
            value = ui.input("Value", value="" if one.is_sensitive else one.value or "").classes("w-full")
            value.props("maxlength=4000").props("data-mark=option-value")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
                ui.button("Default", on_click=lambda: dialog.submit("default")).props("flat data-mark=option-default")
                ui.button("Save", on_click=lambda: dialog.submit("save")).props("unelevated").props(
                    "data-mark=option-save"
                )
        choice = await dialog
        wanted = str(value.value or "")
        dialog.delete()
        if choice is None:
            return
        chosen = wanted if choice == "save" else None
        actions = self._console.actions
        done, _ = await attempt(
            actions.set_option, who, self._kind, self._name, one.name, chosen, done=f"{one.name} is changed"
        )
        if done:
            await self._listing.load()


def show_value(one: Option) -> str:
    return "••••••" if one.is_sensitive else units.brief(one.value or "", 60)


def source(one: Option) -> str:
    return SOURCES.get(one.config_source, "unknown")
