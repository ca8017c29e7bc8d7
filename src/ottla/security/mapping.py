"""Maps the subject of a certificate to a principal name: `ssl.principal.mapping.rules`, with Kafka's syntax.

    RULE:^CN=(.*?),.*$/$1/L, RULE:^CN=(.*)$/$1/, DEFAULT

The first rule whose pattern matches the whole name applies; L and U convert the result to lower or upper case. DEFAULT
keeps the name unchanged. A name that no rule matches is refused. Patterns are set by file, never by clients.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final, NamedTuple

from ottla.config.option import ConfigError

OPTION: Final = "ssl.principal.mapping.rules"
RULE: Final = re.compile(r"\s*RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<text>(?:\\.|[^\\/])*)/(?P<case>[LU]?)\s*(?:,|$)")
DEFAULT: Final = re.compile(r"\s*DEFAULT\s*(?:,|$)")
REFERENCE: Final = re.compile(r"\\(.)|\$(\d)")
SUBJECT_SIZE_MAX: Final = 8192  # the longest name that patterns are tried on


class MappingRule(NamedTuple):
    pattern: re.Pattern[str] | None  # None: any name, unchanged
    text: str
    case: str


class UnmappedError(ValueError):
    """No rule matches this name."""


class Mapping:
    """The rules of a listener."""

    def __init__(self, rules: str) -> None:
        self._rules = parse(rules)

    def name(self, subject: str) -> str:
        if len(subject) > SUBJECT_SIZE_MAX:
            raise UnmappedError("the subject of the certificate is too long")
        for pattern, text, case in self._rules:
            if pattern is None:
                return subject
            found = pattern.fullmatch(subject)
            if found is not None:
                made = REFERENCE.sub(partial(replace_sign, found), text)
                return made.lower() if case == "L" else made.upper() if case == "U" else made
        raise UnmappedError(f"no rule of {OPTION} matches the subject {subject}")


def replace_sign(found: re.Match[str], sign: re.Match[str]) -> str:
    return sign[1] if sign[2] is None else found[int(sign[2])] or ""


def parse(rules: str) -> list[MappingRule]:
    parsed, position = [], 0
    while position < len(rules.rstrip()):
        match = RULE.match(rules, position) or DEFAULT.match(rules, position)
        if match is None:
            raise ConfigError(
                f"{OPTION}: {rules[position:].strip()} is neither RULE:pattern/replacement/[LU] nor DEFAULT"
            )
        position = match.end()
        if match.re is DEFAULT:
            parsed.append(MappingRule(None, "", ""))
            continue
        try:
            pattern = re.compile(match["pattern"])
        except re.error as error:
            raise ConfigError(f"{OPTION}: {match['pattern']} is not a regular expression: {error}") from None
        if any(int(sign[2]) > pattern.groups for sign in REFERENCE.finditer(match["text"]) if sign[2] is not None):
            raise ConfigError(f"{OPTION}: {match['text']} refers to a group that {match['pattern']} does not have")
        parsed.append(MappingRule(pattern, match["text"], match["case"]))
    return parsed or [MappingRule(None, "", "")]
