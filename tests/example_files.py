"""The files in `examples/`, and their expected output."""

import ast
import textwrap
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "examples"
FILES = sorted(FOLDER.glob("*.py"))
ON_SPARK = [file for file in FILES if file.name.startswith("spark_")]
PLAIN = [file for file in FILES if file not in ON_SPARK]


def expected_output(file: Path) -> str:
    """The text below `Prints:` in the docstring; empty if there is none."""
    docstring = ast.get_docstring(ast.parse(file.read_text()))
    assert docstring, "an example says what it shows"
    return textwrap.dedent(docstring.partition("Prints:\n")[2]).strip()
