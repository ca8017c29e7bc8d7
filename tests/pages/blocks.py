"""The blocks of README and docs that a reader may run: read out of the pages, and run as the reader would.

A comment on the line before a block says so. It does not show when the page is rendered.

    <!-- runnable -->                sh: a script; console: commands after `$`, and what they print; python: a program,
                                     or tests if it has any
    <!-- runnable: background -->    the last line of the block goes on; `output` is what it prints when it is ready
    <!-- runnable: output -->        that
    <!-- runnable: spark -->         python with a session in `spark`: see tests/spark/test_pages.py

What is printed is compared but for numbers, ids and the width of columns, which differ from run to run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK = re.compile(
    r"<!-- runnable(?:: (?P<kind>\w+))? -->\n```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
MARKED = "<!-- runnable"
VARYING = {  # in this order
    r"[A-Za-z0-9_-]{22}\b": "ID",
    r"[-+]?\d+([.:]\d+)*": "0",
    r"0 (ms|s|min|h|d)\b": "0 s",
    r"─+": "─",
    r"\s+": " ",
}
ADDRESS = "localhost:9092"  # where the pages have their broker


class Block(NamedTuple):
    page: Path
    line: int
    kind: str
    language: str
    text: str

    def at(self, address: str) -> str:
        """The text for a broker at another address; a broker that the block starts takes any port."""
        return self.text.replace(ADDRESS, address).replace("port=9092", "port=0")

    def commands(self, address: str) -> Iterator[tuple[str, str]]:
        """Of a console: each command, and what it prints."""
        for part in re.split(r"^\$ ", self.at(address), flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read(page: Path) -> list[Block]:
    text = page.read_text()
    found = [
        Block(page, text.count("\n", 0, match.start()) + 1, match["kind"] or "", match["language"], match["text"])
        for match in MARK.finditer(text)
    ]
    assert len(found) == text.count(MARKED), f"{page.name}: a mark without a fenced block behind it"
    return found


def plain(output: str) -> list[str]:
    """Lines without what differs from run to run."""
    found = []
    for line in output.replace("localhost", "127.0.0.1").splitlines():
        for pattern, stand_in in VARYING.items():
            line = re.sub(pattern, stand_in, line)
        found.append(line.strip())
    return [line for line in found if line]
