"""Our declarations against the JSON definitions of Apache Kafka, 4.3.1 and 3.9.2: 200 files, field by field.

The declarations are the union of both releases. So each release is compared over the versions it has, and what it lacks
must be found in the other: no field, no message and no version of ours comes from nowhere. Within a release everything
counts: order, kind, format, versions, nullability, tag, default, and which lengths stay in the old form.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest
from wire.definitions import Definition, Span, definitions, snake, span
from wire.samples import REDEFINED, all_messages

from ottla.wire.schema import FRESH, LAST, ZERO_UUID, Field, fields, spec

RELEASES = ("4.3.1", "3.9.2")
DECLARED = {cls.__name__: cls for cls in all_messages()}
LETTERS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I", "float64": "d"}
FORMATS = LETTERS | {"bool": "?", "uuid": "16s"}
KINDS = {"string": "string", "bytes": "blob", "records": "records"}
EMPTY: dict[str, object] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "uuid": ZERO_UUID,
    "records": None,
    "float64": 0.0,
}


class Shape(NamedTuple):
    """One field at one version, in the words of either side. A struct's fields follow it, indented in the name."""

    path: str
    kind: str
    format: str
    array: bool
    nullable: bool
    tag: int | None
    compact: bool
    default: object


@pytest.mark.parametrize("release", RELEASES)
def test_every_definition_is_declared_and_equal(release: str) -> None:
    wrong = []
    for name, definition in definitions(release).items():
        assert name in DECLARED, f"{name} of {release} is not declared"
        cls = DECLARED[name]
        assert spec(cls).key == definition.key, name
        assert spec(cls).flexible == definition.flexible, name
        low, high = definition.versions
        for version in range(low, high + 1):
            if release == "3.9.2" and version in REDEFINED.get(name, ()):
                continue
            ours, theirs = declared(cls, version), defined(definition, version)
            wrong += [f"{name} v{version}: {a} is not {b}" for a, b in zip(ours, theirs, strict=False) if a != b]
            wrong += [f"{name} v{version}: {len(ours)} fields, not {len(theirs)}"] * (len(ours) != len(theirs))
    assert not wrong, "\n".join(wrong[:20])


def test_nothing_else_is_declared() -> None:
    new, old = (definitions(release) for release in RELEASES)
    assert set(DECLARED) == set(new) | set(old)
    for name, cls in DECLARED.items():
        spans = [known[name].versions for known in (new, old) if name in known]
        assert spec(cls).versions == (min(low for low, _ in spans), max(high for _, high in spans)), name
        reached = {version for low, high in spans for version in range(low, high + 1)}
        assert reached == set(range(spec(cls).versions[0], spec(cls).versions[1] + 1)), f"{name}: a version in neither"


def test_redefined_versions_are_still_different() -> None:
    """An exemption that is no longer needed must go."""
    for name, versions in REDEFINED.items():
        for version in versions:
            assert declared(DECLARED[name], version) != defined(definitions("3.9.2")[name], version), (name, version)


@pytest.mark.parametrize(
    "change",
    [
        {"versions": "13+"}, {"type": "[]LeaderIdAndEpoch"}, {"nullableVersions": "12+", "default": "null"}, {"tag": 3},
        {"taggedVersions": "none"}, {"name": "Leader"}, {"fields": []}, {"flexibleVersions": "none"},
        {"type": "int32", "fields": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_difference_is_noticed(change: dict[str, Any]) -> None:
    """The comparison itself: one changed property of one field, three levels down, and the two sides differ."""
    definition = definitions("4.3.1")["FetchResponse"]
    assert declared(DECLARED["FetchResponse"], 12) == defined(definition, 12)
    changed = definition._replace(fields=copy.deepcopy(definition.fields))
    topics = next(one for one in changed.fields if one["name"] == "Responses")
    partitions = next(one for one in topics["fields"] if one["name"] == "Partitions")
    leader = next(one for one in partitions["fields"] if one["name"] == "CurrentLeader")
    leader.update(change)
    assert declared(DECLARED["FetchResponse"], 12) != defined(changed, 12)


def declared(cls: type[Any], version: int, prefix: str = "") -> list[Shape]:
    flexible = version >= spec(cls).flexible if not prefix else True
    shapes = []
    for field in fields(cls):
        if field.present(version):
            default = [] if field.default is FRESH else None if field.default is None else plain(field)
            shapes.append(
                Shape(
                    prefix + field.name,
                    field.kind,
                    field.format,
                    field.array,
                    field.may_be_null(version),
                    field.tag,
                    field.compact,
                    default,
                )
            )
            if field.struct is not None:
                shapes += declared(field.struct, version, f"{prefix}{field.name}.")
    assert flexible or not any(shape.tag is not None for shape in shapes), f"{cls.__name__}: a tag in an old version"
    return shapes


def plain(field: Field) -> object:
    return "struct" if field.struct is not None else field.default


def defined(definition: Definition, version: int) -> list[Shape]:
    return list(walk(definition.fields, definition.structs, version, ""))


def walk(raw: list[dict[str, Any]], structs: dict[str, list[dict[str, Any]]], version: int, prefix: str) -> list[Shape]:
    shapes = []
    for one in raw:
        if not within(one["versions"], version):
            continue
        array = one["type"].startswith("[]")
        word = one["type"].removeprefix("[]")
        inner = one.get("fields") or structs.get(word)
        kind = "struct" if inner else KINDS.get(word, "fixed")
        tagged = within(one.get("taggedVersions", "none"), version)
        path = prefix + snake(one["name"])
        shapes.append(
            Shape(
                path,
                kind,
                FORMATS.get(word, ""),
                array,
                within(one.get("nullableVersions", "none"), version),
                int(one["tag"]) if tagged else None,
                one.get("flexibleVersions") != "none",
                default_of(one, word, array, inner is not None),
            )
        )
        if inner:
            shapes += walk(inner, structs, version, f"{path}.")
    return shapes


def default_of(one: dict[str, Any], word: str, array: bool, struct: bool) -> object:
    text = one.get("default")
    if text is None:
        return [] if array else "struct" if struct else EMPTY.get(word, 0)
    if text == "null":
        return None
    if word == "string":
        return text
    if word == "bool":
        return str(text).lower() == "true"
    assert word in LETTERS, one
    return float(text) if word == "float64" else int(str(text), 0)


def within(text: str, version: int) -> bool:
    found: Span | None = span(text)
    return found is not None and found[0] <= version <= found[1]


def test_spans() -> None:
    assert [span(text) for text in ("none", "3", "3-7", "3+")] == [None, (3, 3), (3, 7), (3, LAST)]
