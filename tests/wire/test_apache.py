"""Apache Kafka's own classes as the judge of our bytes: every message at every version, with values from a seed.

What we encode, Kafka must read to its last byte, write back the same, and show as JSON with the values we put in. So
both directions are held to Kafka's, values included: nothing can be wrong the same way in our encoder and our decoder.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from judge import java
from wire.definitions import definitions, snake
from wire.samples import REDEFINED, all_messages, instance, versions

from ottla.wire.codec import decode, encode
from ottla.wire.schema import Field, fields

ECHO = Path(__file__).with_name("Echo.java")
DECLARED = {cls.__name__: cls for cls in all_messages()}
ROUNDS = 4


@pytest.mark.parametrize("release", ["4.3.1", "3.9.2"])
def test_apache_reads_and_writes_the_same_bytes(release: str, tmp_path: Path) -> None:
    sent = []
    for name, definition in sorted(definitions(release).items()):
        for version in versions(DECLARED[name]):
            low, high = definition.versions
            if not low <= version <= high or (release == "3.9.2" and version in REDEFINED.get(name, ())):
                continue
            sent += [(name, version, instance(DECLARED[name], version, Random(seed))) for seed in range(ROUNDS)]
    lines = [f"{name} {version} {encode(message, version).hex()}" for name, version, message in sent]
    requests = tmp_path / "messages.txt"
    requests.write_text("\n".join(lines) + "\n")
    answers = java(ECHO, str(requests), version=release).out.splitlines()
    assert len(answers) == len(sent) > 2000
    wrong = []
    for (name, version, message), line, answer in zip(sent, lines, answers, strict=True):
        written, _, text = answer.partition("\t")
        if written != line.split(" ")[2]:
            wrong.append(f"{line}\n  {answer}")
            continue
        assert decode(DECLARED[name], version, bytes.fromhex(written)) == message
        shown = {snake(key): value for key, value in json.loads(text).items()}
        wrong += [f"{line}\n  {text}\n  {why}" for why in differences(message, shown, version)]
    assert not wrong, f"{len(wrong)} of {len(sent)}:\n" + "\n".join(wrong[:5])


def differences(message: Any, shown: dict[str, Any], version: int) -> list[str]:
    """How our message differs from Kafka's JSON, which leaves out tagged fields that have their default."""
    found = []
    for field in fields(type(message)):
        if field.present(version) and field.kind != "records":
            ours = getattr(message, field.name)
            if field.name in shown:
                found += differs(field, ours, shown[field.name], version)
            elif field.tag is None:
                found.append(f"{field.name} is not shown")
    return found


def differs(field: Field, ours: Any, theirs: Any, version: int) -> list[str]:
    if ours is None or theirs is None:
        return [] if ours is theirs else [f"{field.name}: {ours!r} is not {theirs!r}"]
    if field.array:
        single = field._replace(array=False)
        if len(ours) != len(theirs):
            return [f"{field.name}: {len(ours)} elements are not {len(theirs)}"]
        return [why for a, b in zip(ours, theirs, strict=True) for why in differs(single, a, b, version)]
    if field.struct is not None:
        return differences(ours, {snake(key): value for key, value in theirs.items()}, version)
    return [] if plain(field, ours) == theirs else [f"{field.name}: {ours!r} is not {theirs!r}"]


def plain(field: Field, ours: Any) -> object:
    """A value as Kafka's JSON writes it."""
    if field.kind == "blob":
        return base64.b64encode(ours).decode()
    if field.format == "16s":
        return base64.urlsafe_b64encode(ours).decode().rstrip("=")
    return ours
