"""What README and docs say can be run is run, from an empty home, page by page and from top to bottom."""

from pathlib import Path

import pytest
from pages import blocks
from pages.reader import Reader

HERE = {"", "background", "output"}
RUNNABLE = [page for page in blocks.PAGES if {block.kind for block in blocks.read(page)} & HERE]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_every_block_of_a_page_works(page: Path, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        todo = [block for block in blocks.read(page) if block.kind in HERE]
        if not any(block.kind == "background" for block in todo):
            reader.start_broker()
        for block in todo:
            reader.follow(block)


def test_the_readme_has_something_to_run() -> None:
    assert blocks.ROOT / "README.md" in RUNNABLE
