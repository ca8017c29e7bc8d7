"""An option is in a table because something reads it; one that nobody reads says so, in docs/options.md too."""

import re
from functools import cache
from pathlib import Path

import ottla.config
from ottla.config.broker import OPTIONS as BROKER_OPTIONS
from ottla.config.manual import page
from ottla.config.option import Option
from ottla.config.topic import INHERITED
from ottla.config.topic import OPTIONS as TOPIC_OPTIONS

SOURCE = Path(ottla.config.__file__).parent.parent


@cache
def words() -> set[str]:
    """Every name in the source, except where the tables declare their rows. Those of TLS are read as they are written,
    by the code that reads them for clients."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        lines = path.read_text().splitlines()
        if path.parent.name == "config":
            lines = [line for line in lines if not re.match(r"    \w+: .* = \w+\(", line)]
        found.update(re.findall(r"\w+", "\n".join(lines)))
        if path.parent.name == "client":
            found.update(name.replace(".", "_") for name in re.findall(r'"(ssl[\w.]+)"', "\n".join(lines)))
    return found


def idle(rows: dict[str, Option]) -> set[str]:
    return {name for name, row in rows.items() if row.idle}


def test_every_topic_option_is_read_or_says_that_it_has_no_effect() -> None:
    unread = {name for name, row in TOPIC_OPTIONS.items() if row.attribute not in words()}
    assert unread == idle(TOPIC_OPTIONS)


def test_every_broker_option_is_read_or_says_that_it_has_no_effect() -> None:
    chained = {name for row in BROKER_OPTIONS.values() for name, _ in row.chain}
    inherited = {source for name, source in INHERITED.items() if name not in idle(TOPIC_OPTIONS)}
    unread = {name for name, row in BROKER_OPTIONS.items() if row.attribute not in words()}
    assert unread - chained - inherited == idle(BROKER_OPTIONS)


def test_the_page_of_options_names_those_without_effect() -> None:
    marked = {line.split("`")[1] for line in page().splitlines() if "**No effect:**" in line}
    assert marked == idle(BROKER_OPTIONS) | idle(TOPIC_OPTIONS)
