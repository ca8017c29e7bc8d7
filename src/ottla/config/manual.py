"""Generates `docs/options.md` from the rows. `python -m ottla.config.manual` prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.broker import OPTIONS as BROKER_OPTIONS
from ottla.config.group import INHERITED as GROUP_INHERITED
from ottla.config.group import OPTIONS as GROUP_OPTIONS
from ottla.config.option import DOUBLE_MAX, INT_MAX, LONG_MAX, READ_ONLY, text_of
from ottla.config.others import OTHERS
from ottla.config.sources import variable
from ottla.config.topic import INHERITED
from ottla.config.topic import OPTIONS as TOPIC_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.config.option import Option

INTRODUCTION = f"""# Options

Written by `make docs` from `src/ottla/config`; do not edit.

Ottla has Kafka's options under Kafka's names. They come from a `server.properties` file (`--config`), from the
environment (`{variable("log.segment.bytes")}` for `log.segment.bytes`) and from `--set name=value`; the later wins.
The broker does not start with an unknown option or an invalid value; the error names it.

*live*: how the option can be changed while the broker runs (`ottla configs`, `kafka-configs.sh`): for one broker only
(`per-broker`), or also for all brokers at once (`cluster-wide`). The others are read at start. An option marked
**no effect** is accepted and shown, but changes nothing.
"""
TOPICS = """## Topic options

Set when a topic is created or at any time after. An option that is not set for a topic has the value of the broker's
option on the right.
"""
GROUPS = """## Group options

Set at any time, even before the group exists. An option that is not set for a group has the value of the broker's
option on the right. The broker's `group.consumer.min.*` and `group.consumer.max.*` are the bounds.
"""
ACCEPTED = """## Options of Kafka without effect

Accepted, so that a `server.properties` of Kafka can be used as it is. One log line at start lists those that are set.
"""
REFUSED = """## Options of Kafka that are refused

Ignoring them would be unsafe, so the broker does not start with them, unless the value is Kafka's default.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Broker options\n", *_broker_table()]
    parts += ["", TOPICS, *_topic_table(), "", GROUPS, *_group_table()]
    for title, refused in ((ACCEPTED, False), (REFUSED, True)):
        parts += ["", title]
        for reason, names in _reasons(refused=refused).items():
            parts += [f"**{reason}** {', '.join(f'`{name}`' for name in names)}", ""]
    return "\n".join(parts).rstrip() + "\n"


def _broker_table() -> Iterable[str]:
    yield "| option | type | default | bounds | live | what |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, row in BROKER_OPTIONS.items():
        live = "" if row.live == READ_ONLY else row.live
        what = " ".join(filter(None, (row.doc, row.differs, _idle(row))))
        yield f"| `{name}` | {row.kind.lower()} | {_default(row)} | {_bounds(row)} | {live} | {what} |"


def _topic_table() -> Iterable[str]:
    yield "| option | type | bounds | broker's option | what |"
    yield "| --- | --- | --- | --- | --- |"
    for name, row in TOPIC_OPTIONS.items():
        source = f"`{INHERITED[name]}`" if name in INHERITED else ""
        what = f"{row.doc} {_idle(row)}".strip()
        yield f"| `{name}` | {row.kind.lower()} | {_bounds(row)} | {source} | {what} |"


def _group_table() -> Iterable[str]:
    yield "| option | type | bounds | broker's option | what |"
    yield "| --- | --- | --- | --- | --- |"
    for name, row in GROUP_OPTIONS.items():
        yield f"| `{name}` | {row.kind.lower()} | {_bounds(row)} | `{GROUP_INHERITED[name]}` | {row.doc} |"


def _reasons(*, refused: bool) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for name, other in OTHERS.items():
        if other.refused == refused:
            reasons.setdefault(other.reason, []).append(name)
    return reasons


def _idle(row: Option) -> str:
    return f"**No effect:** {row.idle}" if row.idle else ""


def _default(row: Option) -> str:
    if row.default in (INT_MAX, LONG_MAX, DOUBLE_MAX):
        return "no limit"
    if row.default is None:
        return f"as `{row.chain[0][0]}`" if row.chain else ""
    return f"`{text_of(row.default)}`" if text_of(row.default) else "empty"


def _bounds(row: Option) -> str:
    if row.choices:
        return " ".join(f"`{choice}`" for choice in row.choices)
    if row.least is not None and row.most is not None:
        return f"{row.least} to {row.most}" + (f" or {row.also}" if row.also is not None else "")
    return f"≥ {row.least}" if row.least is not None else ""


if __name__ == "__main__":
    print(page(), end="")
