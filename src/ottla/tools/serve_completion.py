"""What a shell offers after `ottla serve`: the options of its own parser, which is not Typer's."""

from importlib import import_module
from typing import Any

from typer.core import TyperCommand


class ServeCommand(TyperCommand):
    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        from ottla.serve import parser

        # Typer brings its own copy of Click, or uses the one that is installed, by its version.
        click = next(base.__module__ for base in TyperCommand.__mro__ if base.__name__ == "Command").rpartition(".")[0]
        item = import_module(f"{click}.shell_completion").CompletionItem
        actions = parser()._actions
        before = ctx.args[-1] if ctx.args else None
        for action in actions:
            if before in action.option_strings and action.choices:
                return [item(choice) for choice in action.choices if choice.startswith(incomplete)]
        names = ((action.option_strings[-1], action.help) for action in actions)
        return [item(name, help=text) for name, text in names if name.startswith(incomplete)]
