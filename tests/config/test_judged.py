"""The tables against Apache Kafka's own, printed by its jars: names, types, defaults, bounds, what may change live."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import judge
import pytest

from ottla.config import ConfigError, load, parse_properties, topic_config
from ottla.config.broker import OPTIONS as BROKER_OPTIONS
from ottla.config.option import Option, text_of
from ottla.config.others import OTHERS
from ottla.config.topic import INHERITED
from ottla.config.topic import OPTIONS as TOPIC_OPTIONS

HERE = Path(__file__).parent
# Options that Kafka knows though its table does not: set for its authorizer, or only while running.
ELSEWHERE = {
    "super.users",
    "allow.everyone.if.no.acl.found",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}


class Row(NamedTuple):
    kind: str
    default: str | None
    validator: str
    internal: bool


@cache
def printed(version: str) -> list[list[str]]:
    return [line.split("\t") for line in judge.java(HERE / "Options.java", version=version).out.splitlines()]


def table(name: str) -> dict[str, Row]:
    """The union of both versions; where they differ the newer one counts."""
    found = {}
    for version in (judge.ZOOKEEPER, judge.NEWEST):
        for line in printed(version):
            if line[0] == name:
                _, option, kind, default, validator, _, internal = line
                value = default[1:] if default.startswith("=") else None
                found[option] = Row(kind, value, validator, internal == "true")
    return found


def ours() -> dict[str, Option]:
    return {**{name: other.row for name, other in OTHERS.items()}, **BROKER_OPTIONS}


def test_every_broker_option_of_kafka_is_known() -> None:
    kafka = table("broker")
    assert kafka.keys() <= ours().keys()
    assert {name for name in ours().keys() - kafka.keys() if not name.startswith("ottla.")} == ELSEWHERE


def test_every_topic_option_of_kafka_is_known() -> None:
    kafka = {name for name, row in table("topic").items() if not row.internal}
    assert kafka == TOPIC_OPTIONS.keys()


@pytest.mark.parametrize("which", ["broker", "topic"])
def test_types_and_defaults_are_kafkas_unless_the_row_says_why(which: str) -> None:
    rows = ours() if which == "broker" else TOPIC_OPTIONS
    wrong = []
    for name, kafka in table(which).items():
        row = rows.get(name)
        if row is None:
            continue
        if row.kind != kafka.kind:
            wrong.append(f"{name}: {row.kind}, Kafka {kafka.kind}")
        if text_of(row.default) != kafka.default and not row.differs:
            wrong.append(f"{name}: {text_of(row.default)!r}, Kafka {kafka.default!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("which", ["broker", "topic"])
def test_bounds_are_kafkas_unless_the_row_says_why(which: str) -> None:
    rows = BROKER_OPTIONS if which == "broker" else TOPIC_OPTIONS
    wrong = []
    for name, kafka in table(which).items():
        row = rows.get(name)
        if row is None or row.differs or not kafka.validator.startswith("["):
            continue
        if row.pattern or name.endswith("format.version"):  # judged by their verdicts below
            continue
        if bounds(row) != kafka.validator:
            wrong.append(f"{name}: {bounds(row)}, Kafka {kafka.validator}")
    assert not wrong, "\n".join(wrong)


def bounds(row: Option) -> str:
    """In the words of Kafka's validators."""
    if row.choices:
        return f"[{', '.join(row.choices)}]"
    end = f",{row.most}]" if row.most is not None else "]"
    return f"[{row.least},...{end}" + (f" or {row.also}" if row.also is not None else "")


def test_what_may_change_live_may_change_live_in_kafka() -> None:
    modes: dict[str, str] = {}
    for version in (judge.ZOOKEEPER, judge.NEWEST):
        modes |= {line[1]: line[2] for line in printed(version) if line[0] == "mode"}
    kafkas = {name: row for name, row in BROKER_OPTIONS.items() if not name.startswith("ottla.")}
    live = {name: row.live for name, row in kafkas.items() if row.live != "read-only"}
    assert live == {name: modes.get(name, "no such option") for name in live}
    # What is left is bound to a socket or to a thread pool that is not there, or is a secret, which the store would
    # keep for everybody to read, or says whom to let in, which is for the file to say.
    left = {name for name in modes.keys() & BROKER_OPTIONS.keys() if name not in live}
    assert {name for name in left if not name.startswith(("ssl.", "sasl."))} == {
        "advertised.listeners",
        "listeners",
        "listener.security.protocol.map",
    }


def test_topics_inherit_from_kafkas_synonyms() -> None:
    for version in (judge.ZOOKEEPER, judge.NEWEST):
        for line in printed(version):
            if line[0] != "inherits" or line[1] not in INHERITED:
                continue
            _, topic, first, *rest = line
            row = BROKER_OPTIONS[INHERITED[topic]]
            assert (row.name, [name for name, _ in row.chain]) == (first, rest)


VERDICTS = [
    "retention.ms=abc",
    "retention.ms=-2",
    "retention.ms=0",
    "retention.ms= 5 ",
    "retention.ms=1.0",
    "retention.ms=1e3",
    "retention.ms=1_000",
    "retention.ms=99999999999999999999",
    "retention.ms=",
    "retention.bytes=-5",
    "segment.bytes=99999999999",
    "segment.bytes=+5000000",
    "segment.ms=0",
    "cleanup.policy=",
    "cleanup.policy=compact, delete",
    "cleanup.policy=delete,delete",
    "cleanup.policy=delete,",
    "cleanup.policy=foo",
    "preallocate=yes",
    "preallocate=TRUE",
    "min.cleanable.dirty.ratio=2",
    "min.cleanable.dirty.ratio=-0.1",
    "min.cleanable.dirty.ratio=x",
    "min.cleanable.dirty.ratio=0.25",
    "compression.type=LZ4",
    "compression.type=foo",
    "compression.gzip.level=0",
    "compression.gzip.level=-1",
    "compression.lz4.level=18",
    "message.timestamp.type=foo",
    "leader.replication.throttled.replicas=0:1,1:2",
    "leader.replication.throttled.replicas=*",
    "leader.replication.throttled.replicas=x",
    "unknown.option=1",
]


def test_topic_options_are_taken_and_refused_in_kafkas_words() -> None:
    kafka = dict(line.split("\t") for line in judge.java(HERE / "Verdict.java", *VERDICTS).out.splitlines())
    assert {argument: verdict(argument) for argument in VERDICTS} == kafka


def verdict(argument: str) -> str:
    name, _, value = argument.partition("=")
    try:
        topic_config(load({}), {name: value})
    except ConfigError as error:
        return str(error)
    return "ok"


PROPERTIES = (
    "  spaced  =  some value  \n"
    r"""
# a comment
! another
plain=value
colon: value
blank value here
empty=
alone
continued=one,\
    two,\
  # not a comment
escaped\=name=a\=b
escaped\ space=x
tab\there=\ttab\n
unicode=\u00e9\u20ac\u0074
path=C\:\\kafka
even=ends in backslash\\
last=no newline\q"""
)


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(PROPERTIES, encoding="utf-8")
    read = {
        line.split("\t")[0]: line.split("\t")[1]
        for line in judge.java(HERE / "Verdict.java", f"@{file}").out.splitlines()
    }
    assert {units(name): units(value) for name, value in parse_properties(PROPERTIES).items()} == read


def units(text: str) -> str:
    return "x" + "".join(f"{ord(char):04x}" for char in text)
