"""Where options come from: `server.properties` files, the environment, `--set name=value`; the later wins.

Properties files have Java's syntax: `name=value`, `name: value` or `name value`, `#` and `!` start a comment, a
backslash at the end of a line continues it, and \\t \\n \\r \\f \\uXXXX and \\<any> are escapes. An environment
variable is `OTTLA_` and the name in upper case with underscores for dots: `OTTLA_LOG_SEGMENT_BYTES`. Ottla's own
options do not repeat the prefix: `ottla.x` is `OTTLA_X`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.option import ConfigError, Refusals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PREFIX = "OTTLA_"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_properties(text: str) -> dict[str, str]:
    """The pairs of a properties file; the last pair of a name wins."""
    return dict(_pair(line) for line in _logical_lines(text))


def parse_settings(arguments: Iterable[str]) -> dict[str, str]:
    """The pairs of `--set name=value` arguments."""
    pairs = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set expects name=value, not {argument!r}")
        pairs[name.strip()] = value
    return pairs


def parse_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Options from environment variables that start with OTTLA_.

    Of unknown names, only near-misses of an option name are rejected.
    """
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    if not ours:
        return {}
    from difflib import get_close_matches

    from ottla.config.broker import OPTIONS
    from ottla.config.others import OTHERS

    names = {variable(name): name for name in (*OTHERS, *OPTIONS)}
    refusals = Refusals()
    for name in sorted(ours.keys() - names.keys()):
        if near := get_close_matches(name, names, n=1, cutoff=0.85):
            refusals.add(f"unknown option {name} in the environment: did you mean {near[0]}?")
    refusals.raise_all()
    return {names[name]: value for name, value in ours.items() if name in names}


def variable(name: str) -> str:
    """The environment variable that sets an option."""
    return PREFIX + name.removeprefix("ottla.").upper().replace(".", "_")


def _logical_lines(text: str) -> Iterator[str]:
    held = ""
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        stripped = line.lstrip(_BLANKS)
        if not held and (not stripped or stripped[0] in "#!"):
            continue
        held += stripped
        trailing = len(held) - len(held.rstrip("\\"))
        if trailing % 2:
            held = held[:-1]
            continue
        yield held
        held = ""
    if held:
        yield held


def _pair(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            out.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            try:
                char = chr(int(digits, 16)) if len(digits) == 4 else ""
            except ValueError:
                char = ""
            if not char:
                raise ConfigError(f"Malformed \\uxxxx encoding: \\u{digits}")
            position += 4
            out.append(char)
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out)
