"""Places that share six or more lines of code: `python scripts/duplicates.py` lists them, the longest first.

Lines are compared without their indentation. Blank lines, comments, docstrings and imports do not count, nor do lines
of brackets alone. A pair is two places with the same longest run of lines; both may be in one file.
docs/design/007-shared-lines.md says why the remaining ones stay; tests/test_tidy.py checks that there are not more.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("src", "tests", "scripts", "bench", "examples", "native")
LINES_MIN: Final = 6


class Line(NamedTuple):
    number: int
    text: str


class Pair(NamedTuple):
    lines: int
    first: str  # path:line
    second: str


def find_pairs(root: Path = ROOT) -> list[Pair]:
    files = {
        path.relative_to(root).as_posix(): code_lines(path.read_text(encoding="utf-8"))
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
        if "target" not in path.parts
    }
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in files.items():
        for index in range(len(lines) - LINES_MIN + 1):
            places[tuple(line.text for line in lines[index : index + LINES_MIN])].append((name, index))
    pairs = []
    for found in places.values():
        for one, first in enumerate(found):
            for second in found[one + 1 :]:
                if length := run_length(files, first, second):
                    name, other = (f"{file}:{files[file][index].number}" for file, index in (first, second))
                    pairs.append(Pair(length, name, other))
    return sorted(pairs, key=lambda pair: (-pair.lines, pair.first, pair.second))


def run_length(files: dict[str, list[Line]], first: tuple[str, int], second: tuple[str, int]) -> int:
    """How many lines are equal from here on; 0 if the lines before are equal, too, so that the run began earlier."""
    (name, here), (other, there) = first, second
    mine, theirs = files[name], files[other]
    if here and there and mine[here - 1].text == theirs[there - 1].text:
        return 0
    length = 0
    while there + length < len(theirs) and here + length < len(mine):
        if mine[here + length].text != theirs[there + length].text or (name == other and here + length >= there):
            break
        length += 1
    return length if length >= LINES_MIN else 0


def code_lines(text: str) -> list[Line]:
    left_out = {number for node in ast.walk(ast.parse(text)) for number in lines_to_leave_out(node)}
    lines = (Line(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if number not in left_out)
    return [line for line in lines if line.text.strip("()[]{},: ") and not line.text.startswith("#")]


def lines_to_leave_out(node: ast.AST) -> range:
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if is_docstring or isinstance(node, ast.Import | ast.ImportFrom):
        assert isinstance(node, ast.stmt)
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


if __name__ == "__main__":
    found = find_pairs()
    for pair in found:
        print(f"{pair.lines:4d}  {pair.first}  {pair.second}")
    print(f"{len(found)} pairs of places share {LINES_MIN} or more lines", file=sys.stderr)
