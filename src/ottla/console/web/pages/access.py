"""Access: rules, users and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import ui

from ottla.console.web.frame import frame
from ottla.console.web.quotas_table import QuotasTable
from ottla.console.web.rules_table import RulesTable
from ottla.console.web.users_table import UsersTable

if TYPE_CHECKING:
    from ottla.console.console import Console

TABS = {"Rules": RulesTable, "Users": UsersTable, "Quotas": QuotasTable}


def add(console: Console) -> None:
    @ui.page("/access")
    def access() -> None:
        with frame(console, "Access", "/access"):
            with ui.tabs().props("align=left dense no-caps").classes("w-full") as tabs:
                made = {name: ui.tab(name) for name in TABS}
            with ui.tab_panels(tabs, value=made["Rules"]).classes("w-full bg-transparent").props("animated=false"):
                for name, table in TABS.items():
                    with ui.tab_panel(made[name]).style("padding:0"), ui.element("div").classes("o-card"):
                        table(console)
