"""A small filter language for records. Input is never executed as code.

    key = "customer-7"                     header.source contains "web"
    value.customer.city = "Praha"          value.items[0].price >= 10 and not key ~ "^test-"
    partition = 3 or offset > 1000         value matches "*error*"

    expression   or-parts of and-parts, `not`, parentheses
    field        key, value, partition, offset, timestamp, header.NAME, and paths into JSON: value.a.b[0], key.a
    comparison   = != < <= > >=   contains   matches "glob*"   ~ "regular expression"   exists (a field alone)

A field without a path is the text of the key or value. A field with a path is the JSON value there; numbers are
compared as numbers. Regular expressions run in RE2, in time linear in the text for every pattern. Length and depth are
limited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.client.failure import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

LENGTH_MAX: Final = 2000
TOKENS_MAX: Final = 200
DEPTH_MAX: Final = 20
PATTERN_MAX: Final = 200
TEXT_MAX: Final = 1 << 16  # characters of a key or value that are searched
MEMORY_MAX: Final = 1 << 20  # per compiled pattern
PLAIN: Final = ("partition", "offset", "timestamp")
TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d+(?:\.\d+)?)|(?P<sign><=|>=|!=|=|<|>|~|\(|\))"""
    r"""|(?P<word>[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\])*))"""
)
SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}
MISSING: Final = object()


@dataclass(frozen=True)
class CandidateRecord:
    """A record as the filter sees it. JSON is parsed once, when a path needs it."""

    partition: int
    offset: int
    timestamp: int
    key: str
    value: str
    headers: Mapping[str, str]
    parsed: dict[str, Any]

    def json(self, field: str) -> Any:
        if field not in self.parsed:
            try:
                self.parsed[field] = json.loads(self.key if field == "key" else self.value)
            except (ValueError, RecursionError):
                self.parsed[field] = MISSING
        return self.parsed[field]


Test = Callable[[CandidateRecord], bool]


class Mistake(Failed):
    """The filter is invalid; says where, and what was expected."""


def compile_filter(text: str) -> Test:
    """Compile a filter to a test of records; an empty filter matches all."""
    if len(text) > LENGTH_MAX:
        raise Mistake(f"the filter has {len(text):,} characters; the maximum is {LENGTH_MAX:,}")
    tokens = tokenize(text)
    if not tokens:
        return lambda seen: True
    parser = Parser(tokens)
    test = parser.either(0)
    if parser.left:
        raise Mistake(f"unexpected {parser.left[0][1]!r}: expected and, or, or the end")
    return test


def tokenize(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise Mistake(f"cannot read {text[position : position + 20].strip()!r}; put texts in double quotes")
        tokens.append((found.lastgroup, found.group(found.lastgroup)))
        position = found.end()
        if len(tokens) > TOKENS_MAX:
            raise Mistake(f"the filter has more than {TOKENS_MAX} parts")
    return tokens


class Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.left = list(tokens)

    def _next(self, *words: str) -> bool:
        if self.left and self.left[0][0] != "text" and self.left[0][1].lower() in words:
            self.left.pop(0)
            return True
        return False

    def either(self, depth: int) -> Test:
        tests = [self.both(depth)]
        while self._next("or"):
            tests.append(self.both(depth))
        return tests[0] if len(tests) == 1 else lambda seen: any(test(seen) for test in tests)

    def both(self, depth: int) -> Test:
        tests = [self.one(depth)]
        while self._next("and"):
            tests.append(self.one(depth))
        return tests[0] if len(tests) == 1 else lambda seen: all(test(seen) for test in tests)

    def one(self, depth: int) -> Test:
        if depth > DEPTH_MAX:
            raise Mistake(f"more than {DEPTH_MAX} levels of parentheses and not")
        if self._next("not"):
            test = self.one(depth + 1)
            return lambda seen: not test(seen)
        if self._next("("):
            test = self.either(depth + 1)
            if not self._next(")"):
                raise Mistake("a parenthesis is not closed")
            return test
        return self.comparison()

    def comparison(self) -> Test:
        kind, name = self.left.pop(0) if self.left else ("", "the end")
        if kind != "word":
            raise Mistake(f"unexpected {name!r}: expected a field such as key, value.id or header.source")
        read = field(name)
        if not self.left or self.left[0][1].lower() in ("and", "or", ")"):
            return lambda seen: read(seen) is not MISSING
        sign = self.left.pop(0)[1].lower()
        if sign not in (*SIGNS, "contains", "matches", "~"):
            raise Mistake(f"unexpected {sign!r} after {name}: expected = != < > contains matches ~")
        kind, text = self.left.pop(0) if self.left else ("", "")
        if kind not in ("text", "number") and text not in ("true", "false", "null"):
            raise Mistake(f'{name} {sign} is compared with a "text" or a number')
        return comparison(read, sign, literal(kind, text))


def literal(kind: str, text: str) -> Any:
    if kind == "text":
        try:
            return json.loads(text)
        except ValueError:
            return text[1:-1]
    if kind == "number":
        return float(text) if "." in text else int(text)
    return {"true": True, "false": False, "null": None}[text]


def field(name: str) -> Callable[[CandidateRecord], Any]:
    head, *rest = re.findall(r"[\w-]+", name)
    if head in PLAIN and not rest:
        return lambda seen: getattr(seen, head)
    if head == "header" and rest:
        wanted = name.partition(".")[2]
        return lambda seen: seen.headers.get(wanted, MISSING)
    if head not in ("key", "value"):
        raise Mistake(f"no field {name!r}: there are key, value, header.NAME, {', '.join(PLAIN)}")
    if not rest:
        return lambda seen: seen.key if head == "key" else seen.value
    steps = [int(step[1:-1]) if step.startswith("[") else step[1:] for step in re.findall(r"\.[\w-]+|\[\d+\]", name)]
    return lambda seen: walk(seen.json(head), steps)


def walk(value: Any, steps: list[int | str]) -> Any:
    for step in steps:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step, MISSING)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return MISSING
    return value


def comparison(read: Callable[[CandidateRecord], Any], sign: str, wanted: Any) -> Test:
    if sign in SIGNS:
        compare = SIGNS[sign]

        def holds(seen: CandidateRecord) -> bool:
            value = read(seen)
            if value is MISSING:
                return False
            try:
                return compare(*alike(value, wanted))
            except TypeError:  # a text and a number cannot be ordered
                return sign == "!="

        return holds
    pattern = matcher(sign, str(wanted))
    return lambda seen: (value := read(seen)) is not MISSING and pattern(to_text(value)[:TEXT_MAX])


def alike(value: Any, wanted: Any) -> tuple[Any, Any]:
    """A text that is a number is compared with numbers as a number."""
    if isinstance(value, str) and isinstance(wanted, int | float) and not isinstance(wanted, bool):
        try:
            return float(value), wanted
        except ValueError:
            return value, wanted
    return value, wanted


def to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def matcher(sign: str, wanted: str) -> Callable[[str], bool]:
    if sign == "contains":
        return lambda text: wanted in text
    if len(wanted) > PATTERN_MAX:
        raise Mistake(f"a pattern has at most {PATTERN_MAX} characters")
    import re2

    options = re2.Options()
    options.max_mem = MEMORY_MAX
    options.log_errors = False
    pattern = translate_glob(wanted) if sign == "matches" else wanted
    try:
        found = re2.compile(pattern, options=options)
    except re2.error as error:
        raise Mistake(f"{wanted!r} is not a regular expression: {error}") from None
    return lambda text: found.search(text) is not None


def translate_glob(glob: str) -> str:
    inner = "".join(".*" if sign == "*" else "." if sign == "?" else re.escape(sign) for sign in glob)
    return f"(?s)^{inner}$"
