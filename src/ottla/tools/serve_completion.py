"""Shell completion for `ottla serve`, whose options come from its own parser, not from Typer."""

from importlib import import_module
from typing import Any

from typer.core import TyperCommand


class ServeCommand(TyperCommand):
    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from ottla.serve import parser

        # Depending on its version, Typer bundles Click or uses the installed one.
        click = next(base.__module__ for base in TyperCommand.__mro__ if base.__name__ == "Command").rpartition(".")[0]
        item = import_module(f"{click}.shell_completion").CompletionItem
        actions = parser()._actions
        before = ctx.args[-1] if ctx.args else None
        for action in actions:
            if before in action.option_strings and action.choices:
                return [item(choice) for choice in action.choices if choice.startswith(incomplete)]
        names = ((action.option_strings[-1], action.help) for action in actions)
        return [item(name, help=text) for name, text in names if name.startswith(incomplete)]
