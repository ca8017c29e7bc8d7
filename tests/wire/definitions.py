"""The JSON definitions that the kafka-clients jar carries, reduced to what is compared with our declarations."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from typing import Any, NamedTuple

from judge import jar

from ottla.wire.schema import LAST

Span = tuple[int, int]


class Definition(NamedTuple):
    name: str
    kind: str  # request, response, header or data
    key: int | None
    versions: Span
    flexible: int
    fields: list[dict[str, Any]]
    structs: dict[str, list[dict[str, Any]]]


@cache
def definitions(release: str) -> dict[str, Definition]:
    """Name → definition, without those that the release says have no versions any more."""
    with zipfile.ZipFile(jar("kafka-clients", release)) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        found = [parse(archive.read(name).decode()) for name in names]
    return {one.name: one for one in found if one is not None}


def parse(text: str) -> Definition | None:
    raw = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    versions = span(raw["validVersions"])
    if versions is None:
        return None
    flexible = span(raw["flexibleVersions"])
    return Definition(
        raw["name"],
        raw["type"],
        raw.get("apiKey"),
        versions,
        LAST + 1 if flexible is None else flexible[0],
        raw["fields"],
        {struct["name"]: struct["fields"] for struct in raw.get("commonStructs", [])},
    )


def span(text: str) -> Span | None:
    """`none`, `3`, `3-7` or `3+`."""
    if text == "none":
        return None
    low, _, high = text.removesuffix("+").partition("-")
    return int(low), LAST if text.endswith("+") else int(high or low)


def snake(name: str) -> str:
    """`TransactionalId` → `transactional_id`."""
    whole = re.sub("[kK]Raft", lambda found: found[0].capitalize() if found[0][0] == "K" else "kraft", name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=2pc)", "_", whole.replace("2Pc", "2pc")).lower()
