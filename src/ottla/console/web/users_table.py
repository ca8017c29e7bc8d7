"""Users that log in with a password (SCRAM); added, changed and removed if allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nicegui import ui

from ottla.client.users import MECHANISMS
from ottla.console.web import units
from ottla.console.web.frame import attempt, sure, user
from ottla.console.web.listing import Listing
from ottla.console.web.table import Column

if TYPE_CHECKING:
    from ottla.console.console import Console

    Login = tuple[str, dict[str, int]]

NAME_MAX: Final = 250


class UsersTable:
    def __init__(self, console: Console) -> None:
        self._console = console
        may = console.actions.allowed

        def tools() -> None:
            if may:
                ui.button("Add user", icon="add", on_click=lambda: self._edit("")).props("unelevated dense").props(
                    "data-mark=user-add"
                )
                ui.label("Click a user to change the password, or to remove the user.").classes("o-soft")

        self._listing: Listing[Login] = Listing(
            [
                Column("User", lambda one: one[0], lambda one: one[0]),
                Column("Mechanisms", lambda one: ", ".join(one[1]), lambda one: ", ".join(one[1])),
                Column("Iterations", spell_iterations, right=True, wide=True),
            ],
            console.actions.users,
            what="The users",
            key=lambda one: one[0],
            find=lambda one: one[0],
            hint="Search users",
            nothing="No user has a password here.",
            on_click=(lambda one: self._edit(one[0], tuple(one[1]))) if may else None,
            mark="users",
            tools=tools,
        )

    async def _edit(self, name: str, mechanisms: tuple[str, ...] = ()) -> None:
        who = user()
        with ui.dialog() as dialog, ui.card().classes("o-card").style("min-width:min(420px,92vw)"):
            ui.label(f"Password of {name}" if name else "Add user").classes("o-head o-wrap")
            login = ui.input("Name", value=name).classes("w-full").props(f"maxlength={NAME_MAX}")
            login.props("data-mark=user-name").set_visibility(not name)
            password = ui.input("Password", password=True).classes("w-full").props("autocomplete=new-password")
            password.props("maxlength=1000").props("data-mark=user-password")
            ways = ui.select(list(MECHANISMS), value=list(mechanisms or MECHANISMS), label="Mechanisms", multiple=True)
            ways.classes("w-full").props("use-chips")
            with ui.row().classes("w-full justify-end"):
                if name:
                    ui.button("Remove user", on_click=lambda: dialog.submit("remove")).props(
                        "flat color=negative"
                    ).props("data-mark=user-remove")
                ui.space()
                ui.button("Cancel", on_click=lambda: dialog.submit(None)).props("flat")
                ui.button("Save", on_click=lambda: dialog.submit("save")).props("unelevated").props(
                    "data-mark=user-save"
                )
        choice = await dialog
        wanted, secret, chosen = str(login.value or "").strip(), str(password.value or ""), list(ways.value or ())
        dialog.delete()
        actions, done = self._console.actions, False
        if choice == "save":
            done, _ = await attempt(
                actions.set_password, who, wanted, secret, chosen, done=f"{wanted} can log in with the new password"
            )
        elif choice == "remove" and await sure(f"Remove {name}? Open connections stay open.", "Remove"):
            done, _ = await attempt(actions.remove_user, who, name, mechanisms, done=f"{name} is removed")
        if done:
            await self._listing.load()


def spell_iterations(login: Login) -> str:
    return ", ".join(units.number(count) for count in dict.fromkeys(login[1].values()))
