"""Generates the API reference from the sources: what is public in `ottla`, `ottla.client` and `ottla.testing`.

It uses `ast`, so that the page is the same under every version of Python. A name is public if a package's
`__all__` has it, or, in `ottla.client`, if it does not begin with an underscore.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
Function = ast.FunctionDef | ast.AsyncFunctionDef

HEAD = """# API reference

Generated from the docstrings by `make docs`. Names that are not here may change without notice.

- [`ottla`](#ottla): a broker inside a Python program
- [`ottla.testing`](#ottlatesting): clusters for tests; the pytest fixtures are in [testing.md](testing.md)
- [`ottla.client`](#ottlaclient): a blocking client for whole record batches
"""


def page() -> str:
    parts = [HEAD]
    for package in ("ottla", "ottla.testing"):
        parts.append(heading(package, SOURCE.joinpath(*package.split("."), "__init__.py")))
        parts += [entry(node, package) for node in exported(package)]
    client = SOURCE / "ottla" / "client"
    parts.append(heading("ottla.client", client / "__init__.py"))
    for file in sorted(client.glob("[a-z]*.py")):
        module = f"ottla.client.{file.stem}"
        if nodes := [node for node in definitions(file) if is_public(node)]:
            parts.append(f"### `{module}`\n\n{summary(parse(file))}\n")
            parts += [entry(node, module, level=4) for node in nodes]
    return "\n".join(parts)


def heading(name: str, file: Path) -> str:
    return f"## {name}\n\n{text_of(parse(file))}\n"


def exported(package: str) -> Iterator[ast.ClassDef | Function]:
    """What `__all__` names, wherever the package imports it from."""
    tree = parse(SOURCE.joinpath(*package.split("."), "__init__.py"))
    names = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    origins = imports(tree)
    for name in names:
        if name in origins and (file := file_of(origins[name])).exists():
            for node in definitions(file):
                if node.name == name:
                    if isinstance(node, ast.ClassDef):
                        node.body += inherited(node, file)
                    yield node


def imports(tree: ast.Module) -> dict[str, str]:
    """Imported names, each with its module."""
    return {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def inherited(node: ast.ClassDef, file: Path) -> list[ast.stmt]:
    """Members of a class's base classes within `ottla`."""
    origins = imports(parse(file))
    names = [ast.unparse(base) for base in node.bases]
    return [
        member
        for name in names
        if origins.get(name, "").startswith("ottla.")
        for base in definitions(file_of(origins[name]))
        if isinstance(base, ast.ClassDef) and base.name == name
        for member in base.body
    ]


def file_of(module: str) -> Path:
    return SOURCE.joinpath(*module.split(".")).with_suffix(".py")


def entry(node: ast.ClassDef | Function, module: str, level: int = 3) -> str:
    kind = "class " if isinstance(node, ast.ClassDef) else ""
    lines = [f"{'#' * level} `{node.name}`", "", "```python", f"{kind}{module}.{signature(node)}", "```", ""]
    if ast.get_docstring(node):
        lines += [text_of(node), ""]
    if isinstance(node, ast.ClassDef) and (members := list(rows(node))):
        lines += ["| | |", "| --- | --- |", *members, ""]
    return "\n".join(lines)


def rows(node: ast.ClassDef) -> Iterator[str]:
    """Fields, properties and methods, a line each."""
    for member in node.body:
        if isinstance(member, Function) and member.name == "__init__":
            yield from (row(name, "") for name in attributes(member))
        elif isinstance(member, ast.AnnAssign) and is_public_name(ast.unparse(member.target)):
            yield row(f"{ast.unparse(member.target)}: {ast.unparse(member.annotation)}", "")
        elif isinstance(member, Function) and is_public(member):
            decorators = {ast.unparse(one) for one in member.decorator_list}
            if decorators & {"property", "cached_property"}:
                returns = f": {ast.unparse(member.returns)}" if member.returns else ""
                yield row(f"{member.name}{returns}", summary(member))
            else:
                awaited = "await " if isinstance(member, ast.AsyncFunctionDef) else ""
                yield row(f"{awaited}{signature(member)}", summary(member))


def attributes(node: Function) -> Iterator[str]:
    """Public attributes that a constructor sets."""
    for line in node.body:
        targets = line.targets if isinstance(line, ast.Assign) else ()
        for target in targets:
            if isinstance(target, ast.Attribute) and is_public_name(target.attr):
                yield target.attr


def row(code: str, words: str) -> str:
    return f"| `{code.replace('|', chr(92) + '|')}` | {words.replace('|', chr(92) + '|')} |"


def signature(node: ast.ClassDef | Function) -> str:
    if isinstance(node, ast.ClassDef):
        made = next((one for one in node.body if isinstance(one, Function) and one.name == "__init__"), None)
        return f"{node.name}({arguments(made)})" if made else node.name
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and ast.unparse(node.returns) != "None" else ""
    return f"{node.name}({arguments(node)}){returns}"


def arguments(node: Function) -> str:
    whole = ast.unparse(node.args)
    return whole.removeprefix("self").removeprefix(", ")


def definitions(file: Path) -> list[ast.ClassDef | Function]:
    return [node for node in parse(file).body if isinstance(node, ast.ClassDef | Function)]


def is_public(node: ast.ClassDef | Function) -> bool:
    return is_public_name(node.name)


def is_public_name(name: str) -> bool:
    return not name.startswith("_")


def summary(node: ast.Module | ast.ClassDef | Function) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def text_of(node: ast.Module | ast.ClassDef | Function) -> str:
    """A docstring as Markdown: its indented examples are blocks already."""
    return ast.get_docstring(node) or ""


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))
