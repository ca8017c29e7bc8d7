"""Every file in `examples/` is run as a user would run it, and prints what its docstring says.

`tests/spark/test_examples.py` runs those that use Spark.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import example_files
import pytest
from process import Ottla

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Ottla(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.bootstrap


@pytest.mark.xdist_group("examples")
@pytest.mark.parametrize("file", example_files.PLAIN, ids=lambda file: file.stem)
def test_an_example_prints_what_it_says(file: Path, address: str, tmp_path: Path) -> None:
    arguments = ["-m", "pytest", "-p", "no:cacheprovider", file] if file.name.startswith("test_") else [file, address]
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert example_files.expected_output(file) in ("", done.stdout.strip())


def test_the_page_lists_every_example() -> None:
    page = (example_files.FOLDER / "README.md").read_text()
    assert not [file.name for file in example_files.FILES if f"]({file.name})" not in page]
