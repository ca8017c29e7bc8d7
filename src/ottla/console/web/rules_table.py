"""Access control rules; added and removed if allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nicegui import ui

from ottla.client.acls import AclRule
from ottla.console.actions import describe_rule, spell_operation
from ottla.console.web.frame import attempt, sure, user
from ottla.console.web.listing import Listing
from ottla.console.web.table import Column
from ottla.security.acl import CLUSTER_NAME, OPERATIONS
from ottla.wire.access import Operation, Pattern, Permission, ResourceType

if TYPE_CHECKING:
    from ottla.console.console import Console

KINDS: Final = {
    kind: kind.name.lower().replace("_", " ") for kind in sorted(OPERATIONS, key=lambda kind: kind.name != "TOPIC")
}
NAME_MAX: Final = 250


class RulesTable:
    """A deny rule overrides allow rules."""

    def __init__(self, console: Console) -> None:
        self._console = console
        may = console.actions.allowed

        def tools() -> None:
            if may:
                ui.button("Add rule", icon="add", on_click=self._add).props(
                    "unelevated dense padding='6px 12px'"
                ).props("data-mark=rule-add")
                ui.label("Click a rule to remove it.").classes("o-soft")

        self._listing: Listing[AclRule] = Listing(
            [
                Column("Who", lambda one: one.principal or "", lambda one: one.principal),
                Column("From", lambda one: one.host or "", lambda one: one.host, wide=True),
                Column("", spell_permission, spell_permission, tone=tone),
                Column("Do", lambda one: spell_operation(one.operation), lambda one: one.operation.name),
                Column("With", spell_resource, spell_resource),
            ],
            console.actions.rules,
            what="The rules",
            key=repr,
            find=describe_rule,
            hint="Search rules",
            nothing="No rules.",
            without="No rules: the brokers have no authorizer (authorizer.class.name), so everything is allowed.",
            on_click=self._remove if may else None,
            mark="rules",
            tools=tools,
        )

    async def _add(self) -> None:
        who = user()
        with ui.dialog() as dialog, ui.card().classes("o-card").style("min-width:min(480px,92vw)"):
            ui.label("Add rule").classes("o-head")
            principal = ui.input("Who", placeholder="User:alice, or User:* for everybody").classes("w-full")
            principal.props(f"maxlength={NAME_MAX} autofocus").props("data-mark=rule-who")
            with ui.row().classes("w-full no-wrap"):
                permission = ui.select({"allow": "may", "deny": "may not"}, value="allow").props("data-mark=rule-may")
                operation = ui.select([], label="Do").classes("col").props("data-mark=rule-operation")
            with ui.row().classes("w-full no-wrap"):
                kind = ui.select({one.name: text for one, text in KINDS.items()}, value="TOPIC", label="With")
                kind.props("data-mark=rule-kind").style("min-width:130px")
                name = ui.input("Name", placeholder="or * for all").classes("col")
                name.props(f"maxlength={NAME_MAX}").props("data-mark=rule-name")
            prefixed = ui.switch("All names with this prefix").props("dense").props("data-mark=rule-prefixed")
            host = ui.input("From address", value="*").classes("w-full").props("maxlength=64")

            def offer() -> None:
                chosen = ResourceType[kind.value]
                choices = [Operation.ALL, *sorted(OPERATIONS[chosen])]
                operation.set_options({one.name: spell_operation(one) for one in choices}, value=choices[1].name)
                name.set_visibility(chosen is not ResourceType.CLUSTER)
                prefixed.set_visibility(chosen is not ResourceType.CLUSTER)

            offer()
            kind.on_value_change(offer)
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
                ui.button("Add", on_click=lambda: dialog.submit(True)).props("unelevated").props("data-mark=rule-save")
        wanted = await dialog
        chosen = ResourceType[kind.value]
        of_cluster = chosen is ResourceType.CLUSTER
        rule = AclRule(
            chosen,
            CLUSTER_NAME if of_cluster else str(name.value or "").strip(),
            Pattern.PREFIXED if prefixed.value and not of_cluster else Pattern.LITERAL,
            complete_principal(str(principal.value or "").strip()),
            str(host.value or "").strip(),
            Operation[operation.value],
            Permission.ALLOW if permission.value == "allow" else Permission.DENY,
        )
        dialog.delete()
        if wanted:
            done, _ = await attempt(self._console.actions.add_rule, who, rule, done="The rule is added")
            if done:
                await self._listing.load()

    async def _remove(self, rule: AclRule) -> None:
        who = user()
        if await sure(f"Remove this rule? {describe_rule(rule)}.", "Remove"):
            await attempt(self._console.actions.remove_rule, who, rule, done="The rule is removed")
            await self._listing.load()


def complete_principal(text: str) -> str:
    """A name without a type is a user."""
    return text if ":" in text or not text else f"User:{text}"


def spell_permission(rule: AclRule) -> str:
    return "may" if rule.permission is Permission.ALLOW else "may not"


def spell_resource(rule: AclRule) -> str:
    kind = KINDS.get(rule.type, rule.type.name)
    if rule.type is ResourceType.CLUSTER:
        return kind
    return f"{kind} {rule.name}" + "…" * (rule.pattern is Pattern.PREFIXED)


def tone(rule: AclRule) -> str:
    return "o-chip " + ("o-good" if rule.permission is Permission.ALLOW else "o-bad")
