"""Quotas of users, client ids and addresses; editable if allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from nicegui import ui

from ottla.client.failure import Failed
from ottla.console.web import units
from ottla.console.web.frame import attempt, user
from ottla.console.web.listing import Listing
from ottla.console.web.table import Column
from ottla.quota.entity import CLIENT_ID, CONNECTION, FETCH, IP, MUTATION, PRODUCE, REQUEST, USER
from ottla.size import parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.console.console import Console

NAME_MAX: Final = 250
KINDS: Final = {
    PRODUCE: "bytes produced per second",
    FETCH: "bytes consumed per second",
    REQUEST: "percent of a broker's time",
    MUTATION: "partitions created or deleted per second",
    CONNECTION: "connections per second",
}
# The entities of a quota: their types, and whether they have a name.
HOLDERS: Final = {
    "a user": ((USER,), True),
    "a client id": ((CLIENT_ID,), True),
    "a user with a client id": ((USER, CLIENT_ID), True),
    "an address": ((IP,), True),
    "each user without one": ((USER,), False),
    "each client id without one": ((CLIENT_ID,), False),
    "each address without one": ((IP,), False),
}
PARTS: Final = {USER: "user", CLIENT_ID: "client id", IP: "address"}


class QuotaValue(NamedTuple):
    """One value of one entity."""

    entity: Mapping[str, str | None]
    key: str
    value: float


class QuotasTable:
    """A default applies to each entity separately, not to their sum."""

    def __init__(self, console: Console) -> None:
        self._console = console
        may = console.actions.allowed

        def tools() -> None:
            if may:
                ui.button("Set quota", icon="add", on_click=self._add).props(
                    "unelevated dense padding='6px 12px'"
                ).props("data-mark=quota-add")
                ui.label("Click a quota to change or remove it.").classes("o-soft")

        self._listing: Listing[QuotaValue] = Listing(
            [
                Column("Who", describe, describe),
                Column("Limit", spell_value, lambda one: one.value, right=True),
                Column("Of", lambda one: KINDS.get(one.key, one.key), lambda one: one.key),
            ],
            self._read,
            what="The quotas",
            key=lambda one: f"{describe(one)} {one.key}",
            find=lambda one: f"{describe(one)} {one.key}",
            hint="Search quotas",
            nothing="No quotas: nobody is limited.",
            on_click=self._change if may else None,
            mark="quotas",
            tools=tools,
        )

    def _read(self) -> list[QuotaValue]:
        found = self._console.actions.quotas()
        return [QuotaValue(quota.entity, key, value) for quota in found for key, value in quota.values.items()]

    async def _add(self) -> None:
        who = user()
        with ui.dialog() as dialog, ui.card().classes("o-card").style("min-width:min(460px,92vw)"):
            ui.label("Set quota").classes("o-head")
            holder = (
                ui.select(list(HOLDERS), value="a user", label="For").classes("w-full").props("data-mark=quota-holder")
            )
            names = {kind: ui.input(text.capitalize()).classes("w-full") for kind, text in PARTS.items()}
            for kind, name in names.items():
                name.props(f"maxlength={NAME_MAX}").props(f"data-mark=quota-{kind}")
            key = ui.select(KINDS, value=PRODUCE, label="Limit").classes("w-full").props("data-mark=quota-key")
            value = ui.input("Value", placeholder="such as 10MB").classes("w-full").props("data-mark=quota-value")

            def offer() -> None:
                kinds, named = HOLDERS[holder.value]
                for kind, name in names.items():
                    name.set_visibility(named and kind in kinds)
                fitting = {one: text for one, text in KINDS.items() if (one == CONNECTION) == (IP in kinds)}
                key.set_options(fitting, value=key.value if key.value in fitting else next(iter(fitting)))

            offer()
            holder.on_value_change(offer)
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
                ui.button("Set", on_click=lambda: dialog.submit(True)).props("unelevated").props("data-mark=quota-save")
        wanted = await dialog
        kinds, named = HOLDERS[holder.value]
        entity = {kind: str(names[kind].value or "").strip() if named else None for kind in kinds}
        chosen, text = str(key.value), str(value.value or "")
        dialog.delete()
        if wanted:
            await self._set(who, entity, chosen, text)

    async def _change(self, line: QuotaValue) -> None:
        who = user()
        with ui.dialog() as dialog, ui.card().classes("o-card").style("min-width:min(420px,92vw)"):
            ui.label(describe(line)).classes("o-head o-wrap")
            ui.label(KINDS.get(line.key, line.key)).classes("o-soft")
            value = ui.input("Value", value=f"{line.value:.15g}").classes("w-full").props("data-mark=quota-value")
            with ui.row().classes("w-full justify-end"):
                ui.button("Remove", on_click=lambda: dialog.submit("remove")).props("flat color=negative").props(
                    "data-mark=quota-remove"
                )
                ui.space()
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
                ui.button("Set", on_click=lambda: dialog.submit("set")).props("unelevated").props(
                    "data-mark=quota-save"
                )
        choice = await dialog
        text = str(value.value or "")
        dialog.delete()
        if choice is not None:
            await self._set(who, line.entity, line.key, text if choice == "set" else None)

    async def _set(self, who: str, entity: Mapping[str, str | None], key: str, text: str | None) -> None:
        """None removes the quota."""
        try:
            value = None if text is None else read_value(key, text)
        except Failed as error:
            ui.notify(str(error), type="negative")
            return
        done, _ = await attempt(
            self._console.actions.set_quota,
            who,
            entity,
            key,
            value,
            done="The quota is removed" if value is None else "The quota is set",
        )
        if done:
            await self._listing.load()


def read_value(key: str, text: str) -> float:
    try:
        return float(parse_size(text)) if key in (PRODUCE, FETCH) else float(text)
    except ValueError:
        wanted = "a size such as 10MB" if key in (PRODUCE, FETCH) else "a number"
        raise Failed(f"{text or 'nothing'}: expected {wanted}") from None


def describe(line: QuotaValue) -> str:
    return ", ".join(
        f"each {PARTS.get(kind, kind)}" if name is None else f"{PARTS.get(kind, kind)} {name}"
        for kind, name in sorted(line.entity.items(), reverse=True)
    )


def spell_value(line: QuotaValue) -> str:
    if line.key in (PRODUCE, FETCH):
        return units.size(line.value)
    return f"{line.value:g} %" if line.key == REQUEST else f"{line.value:g}"
