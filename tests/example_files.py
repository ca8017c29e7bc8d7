"""The files in `examples/`, and what each says that it prints."""

import ast
import textwrap
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "examples"
FILES = sorted(FOLDER.glob("*.py"))
ON_SPARK = [file for file in FILES if file.name.startswith("spark_")]
PLAIN = [file for file in FILES if file not in ON_SPARK]


def expected_output(file: Path) -> str:
    """What stands below `Prints:` in the docstring; nothing if it does not say."""
    docstring = ast.get_docstring(ast.parse(file.read_text()))
    assert docstring, "an example says what it shows"
    return textwrap.dedent(docstring.partition("Prints:\n")[2]).strip()
