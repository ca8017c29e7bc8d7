"""Every `ottla` command on a page exists and takes the options it is shown with: in blocks, in tables, in prose."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import typer
from pages import blocks

from ottla import serve
from ottla.tools.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IN_BLOCK = re.compile(r"^ *(?:\$ )?ottla (.+)$", re.MULTILINE)
IN_PROSE = re.compile(r"`ottla ([^`]+)`")
# After the command: an explanation set apart by spaces, a comment, another command.
BEHIND = re.compile(r"\s{2,}(?=[^\s-]).*|\s+#.*|\s*(?:\||&&|>|;).*")


@pytest.mark.parametrize("page", blocks.PAGES, ids=lambda page: page.name)
def test_every_command_on_a_page_exists(page: Path) -> None:
    wrong = [f"ottla {command}: {reason}" for command in commands(page) if (reason := refusal(command))]
    assert not wrong, "\n".join(wrong)


def test_what_does_not_exist_is_found() -> None:
    assert refusal("topics list --json") is None
    assert refusal("topics lits")
    assert refusal("topics list --jsn")
    assert refusal("serve --portt 1")


def commands(page: Path) -> Iterator[str]:
    text = page.read_text().replace("\\\n", " ")
    for found in (*IN_BLOCK.findall(text), *IN_PROSE.findall(text)):
        if command := BEHIND.sub("", found).strip().removesuffix(" ..."):
            yield command


@cache
def command_tree() -> Any:
    return typer.main.get_command(app)


def refusal(command: str) -> str | None:
    words = shlex.split(command)
    if words[0] == "serve":
        _, unknown = serve.parser().parse_known_args(words[1:])
        return f"there is no option {' '.join(unknown)}" if unknown else None
    found = command_tree()
    while words and not words[0].startswith("-") and (branches := getattr(found, "commands", None)):
        name = words.pop(0)
        if name not in branches:
            return f"there is no {name}"
        found = branches[name]
    if found.context_settings.get("ignore_unknown_options"):
        return None  # a pipeline has options of its own
    options = {"--help", *(name for one in found.params for name in (*one.opts, *one.secondary_opts))}
    unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in options]
    return f"there is no option {' '.join(unknown)}" if unknown else None
