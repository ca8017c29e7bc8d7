"""Every pipeline that comes with Ottla can be found, and docs/pipelines.md has all its options as they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark.pipeline.catalogue import found, named

if TYPE_CHECKING:
    from ottla.spark.pipeline import Option

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pipelines.md"


def test_names_are_those_of_the_files() -> None:
    for name, pipeline in named().items():
        assert found(name) is pipeline
        assert pipeline.summary


@pytest.mark.parametrize("name", sorted(named()))
def test_the_page_has_its_options(name: str) -> None:
    _, heading, section = PAGE.read_text().partition(f"### {name}\n")
    assert heading, f"docs/pipelines.md has no section `### {name}`"
    section = section.partition("\n### ")[0]
    missing = [row(option) for option in named()[name].options if row(option) not in section]
    assert not missing, "docs/pipelines.md lacks:\n" + "\n".join(missing)


def row(option: Option) -> str:
    chosen = f" ({', '.join(option.choices)})" if option.choices else ""
    default = "must be given" if option.default is None else f"`{option.default}`" if option.default else ""
    return f"| `{option.name}` | {default} | {option.summary}{chosen} |"
