"""Every pipeline that comes with Ottla can be found, and docs/pipelines.md has all its options as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark import pipeline
from ottla.spark.pipeline import generating
from ottla.spark.pipelines import restore
from ottla.spark.runner import Pipeline
from ottla.spark.runner.catalogue import find, load_builtins
from ottla.spark.runner.generating import Record

if TYPE_CHECKING:
    from ottla.spark.runner import Option

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pipelines.md"


def test_every_package_is_a_pipeline() -> None:
    for name, built in load_builtins().items():
        assert find(name) is built
        assert built.summary


def test_its_package_is_a_file_for_spark_submit() -> None:
    """As docs/pipelines.md says; the file beside it that defines the pipeline is one as well."""
    for file in (restore.__file__, restore.pipeline.__file__):
        done = subprocess.run([sys.executable, file, "--help"], capture_output=True, text=True, check=True)
        assert "options of this pipeline" in done.stdout


def test_a_file_written_earlier_finds_its_imports() -> None:
    assert generating.Record is pipeline.Record is Record
    assert pipeline.Pipeline is Pipeline


@pytest.mark.parametrize("name", sorted(load_builtins()))
def test_the_page_has_its_options(name: str) -> None:
    _, heading, section = PAGE.read_text().partition(f"### {name}\n")
    assert heading, f"docs/pipelines.md has no section `### {name}`"
    section = section.partition("\n### ")[0]
    missing = [row(option) for option in load_builtins()[name].options if row(option) not in section]
    assert not missing, "docs/pipelines.md lacks:\n" + "\n".join(missing)


def row(option: Option) -> str:
    chosen = f" ({', '.join(option.choices)})" if option.choices else ""
    default = "must be given" if option.default is None else f"`{option.default}`" if option.default else ""
    return f"| `{option.name}` | {default} | {option.summary}{chosen} |"
