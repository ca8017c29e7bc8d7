"""Patterns for topic names: the syntax of RE2, the same results as RE2/J, and bounded time for every pattern."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import judge
import pytest
from laws.yardstick import least, spent

from ottla.coord import patterns
from ottla.coord.patterns import KEPT_MAX, PatternError, compile_pattern, lookup, matching

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

PATTERNS = Path(__file__).parent / "java" / "Patterns.java"
ATOMS = (
    "a",
    "b",
    "-",
    ".",
    "\\.",
    "[ab]",
    "[^a]",
    "[a-c.]",
    "\\d",
    "\\w",
    "\\W",
    "[[:alpha:]]",
    "[^[:digit:]-]",
    "\\b",
)
ODD_ATOMS = (
    "^",
    "$",
    "\\A",
    "\\z",
    "\\B",
    "\\Qa.b\\E",
    "\\x2d",
    "\\x{61}",
    "\\141",
    "[]a]",
    "[a-]",
    "{",
    "a{,2}",
    "(?i)a",
    "",
)
REPEATED_BRACE = re.compile(r"\{[*+?{]")  # a brace that stands for itself and is repeated: RE2/J knows no such thing
BROKEN = (
    "(",
    ")",
    "[",
    "[b-a]",
    "*",
    "\\",
    "a**",
    "(?=a)",
    "(?P<>a)",
    "\\1",
    "\\Z",
    "a{3,2}",
    "a{1001}",
    "[[:nope:]]",
    "(?z)",
)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", ["orders"], ["orders-1", "my-orders", ""]),
        ("orders-.*", ["orders-", "orders-eu"], ["orders", "x-orders-eu"]),
        ("(eu|us)[.-]orders", ["eu.orders", "us-orders"], ["eu_orders"]),
        ("a{2,3}b?", ["aa", "aaab"], ["a", "aaaa"]),
        ("^a+$", ["a", "aaa"], ["b", ""]),
        ("(?i)orders", ["Orders", "ORDERS"], ["order"]),
        ("a(?i:b)a", ["aBa", "aba"], ["Aba"]),
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["aXb", "a.ba.b"]),
        (r"a\b.b", ["a-b"], ["aab"]),
        (r"[[:upper:]]\d+", ["A1"], ["a1", "A"]),
        ("(?P<region>eu)-.+", ["eu-a"], ["eu-"]),
        ("", [""], ["a"]),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matching: list[str], other: list[str]) -> None:
    assert all(compile_pattern(pattern).matches(name) for name in matching)
    assert not any(compile_pattern(pattern).matches(name) for name in other)


@pytest.mark.parametrize("pattern", [*BROKEN, "((a{100}){100}){100}", r"(\pL|\pN){1,1000}"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*a){20}b", "((a*)*)*b"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    found = compile_pattern(pattern)
    assert not found.matches("a" * 249)
    assert least(lambda: spent(lambda: found.matches("a" * 249)), 50) < 50


def test_the_second_lookup_looks_at_new_names_only() -> None:
    names = {f"orders-{number}" for number in range(1000)}
    grown = (names | {"orders-1007", "other"}) - {"orders-17"}
    first = list(drained(lookup("orders-[0-9]*7", names)))
    assert len(first) == 1000
    assert len(list(drained(lookup("orders-[0-9]*7", names)))) == 0, "nothing has changed"
    assert len(list(drained(lookup("orders-[0-9]*7", grown)))) == 2
    assert matching("orders-[0-9]*7", grown) == {name for name in grown if name.endswith("7")}


def test_what_is_remembered_has_a_bound() -> None:
    names = {"a"}
    for number in range(KEPT_MAX + 10):
        assert matching(f"a{{0,1}}|{number}", names) == {"a"}
    assert len(list(drained(lookup("a{0,1}|0", names)))) == 1, "the oldest was forgotten"


def drained(steps: Generator[None, None, frozenset[str]]) -> Iterator[None]:
    yield from steps


def a_pattern(random: Random, depth: int = 3) -> str:
    kind = random.randrange(8) if depth else 0
    if kind < 3:
        pool = ATOMS if random.random() < 0.8 else ODD_ATOMS if random.random() < 0.8 else BROKEN
        return random.choice(pool)
    if kind == 3:
        return f"({random.choice(('', '?:', '?i:', '?s:'))}{a_pattern(random, depth - 1)})"
    if kind == 4:
        return f"{a_pattern(random, depth - 1)}|{a_pattern(random, depth - 1)}"
    if kind == 5:
        return a_pattern(random, depth - 1) + random.choice(("*", "+", "?", "*?", "{2}", "{1,}", "{0,2}"))
    return a_pattern(random, depth - 1) + a_pattern(random, depth - 1)


def test_re2j_gives_the_same_answers(tmp_path: Path) -> None:
    random = Random(848)
    lines = []
    for _ in range(4000):
        names = ["".join(random.choices("abcA1.-_", k=random.randrange(7))) for _ in range(12)]
        lines.append([a_pattern(random), *names])
    (tmp_path / "lines").write_text("\n".join("\t".join(line) for line in lines))
    answers = judge.java(PATTERNS, str(tmp_path / "lines")).out.splitlines()
    assert answers.count("invalid") > 100
    for (pattern, *names), answer in zip(lines, answers, strict=True):
        if REPEATED_BRACE.search(pattern):
            continue
        assert verdict(pattern, names) == answer, (pattern, names)


def verdict(pattern: str, names: list[str]) -> str:
    try:
        found = compile_pattern(pattern)
    except PatternError:
        return "invalid"
    return "".join("1" if found.matches(name) else "0" for name in names)


def test_what_is_remembered_is_bounded_in_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand short patterns over ten thousand topics kept 800 MB."""
    monkeypatch.setattr(patterns, "NAMES_MAX", 1_000)
    patterns._found.clear()
    names = [f"topic-{number}" for number in range(100)]
    for number in range(50):
        assert len(matching(f"x{number}|topic-.*", names)) == 100
    assert patterns._count_names() <= 1_000
    assert len(patterns._found) == 9, "all of them were looked up among the same names"
    patterns._found.clear()
