"""The value of each option and its source, as in DescribeConfigs. Generic: works on the rows only.

An option is looked up in layers. The first layer that has it wins, and the values of the others are its synonyms.
Within a layer, an older name counts if the newer one is not set (`log.retention.hours` for `log.retention.ms`).

    topic or group → this broker, set while running → every broker, set while running → the broker's file → default
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.config.broker import OPTIONS as BROKER_OPTIONS
from ottla.config.broker import BrokerConfig
from ottla.config.client_metrics import OPTIONS as CLIENT_METRICS_OPTIONS
from ottla.config.group import INHERITED as GROUP_INHERITED
from ottla.config.group import OPTIONS as GROUP_OPTIONS
from ottla.config.option import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    READ_ONLY,
    SHORT,
    STRING,
    Option,
    text_of,
)
from ottla.config.security import PREFIX
from ottla.config.topic import INHERITED, topic_config
from ottla.config.topic import OPTIONS as TOPIC_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# ConfigSource numbers of the protocol.
TOPIC, THIS_BROKER, EVERY_BROKER, STATIC, DEFAULT, CLIENT_METRICS, GROUP = 1, 2, 3, 4, 5, 7, 8
TYPES = {BOOLEAN: 1, STRING: 2, INT: 3, SHORT: 4, LONG: 5, DOUBLE: 6, LIST: 7, CLASS: 8, PASSWORD: 9}


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    row: Option
    value: str | None
    source: int
    read_only: bool
    synonyms: list[Synonym]


class Layers(NamedTuple):
    """A broker's options, layer by layer."""

    static: BrokerConfig
    every: Mapping[str, str]
    own: Mapping[str, str]

    @property
    def config(self) -> BrokerConfig:
        return self.static.overlay({**self.every, **self.own})


def describe_topic(
    layers: Layers, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """The options of a topic, or the named ones; unknown names are left out."""
    config = topic_config(layers.config, overrides)
    entries = []
    for name in _select(names, TOPIC_OPTIONS):
        row = TOPIC_OPTIONS[name]
        synonyms = [Synonym(name, overrides[name], TOPIC)] if name in overrides else []
        if name in INHERITED:
            synonyms += _broker_synonyms(layers, BROKER_OPTIONS[INHERITED[name]])
        source = synonyms[0].source if synonyms else DEFAULT
        entries.append(ConfigEntry(row, text_of(getattr(config, row.attribute)), source, False, synonyms))
    return entries


def describe_group(
    layers: Layers, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """The options of a group, or the named ones."""
    entries = []
    for name in _select(names, GROUP_OPTIONS):
        synonyms = [Synonym(name, overrides[name], GROUP)] if name in overrides else []
        synonyms += _broker_synonyms(layers, BROKER_OPTIONS[GROUP_INHERITED[name]])
        entries.append(ConfigEntry(GROUP_OPTIONS[name], synonyms[0].value, synonyms[0].source, False, synonyms))
    return entries


def describe_client_metrics(overrides: Mapping[str, str], names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The options of a client metrics subscription, or the named ones."""
    entries = []
    for name in _select(names, CLIENT_METRICS_OPTIONS):
        row = CLIENT_METRICS_OPTIONS[name]
        synonyms = [Synonym(name, overrides[name], CLIENT_METRICS)] if name in overrides else []
        found = synonyms[0] if synonyms else Synonym(name, text_of(row.default), DEFAULT)
        entries.append(ConfigEntry(row, found.value, found.source, False, synonyms))
    return entries


def describe_broker(layers: Layers, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The options of a broker, including those without effect, or the named ones."""
    from ottla.config.others import OTHERS

    others = {name: other.row for name, other in OTHERS.items() if not other.refused}
    prefixed = {name for name in (*layers.static.given, *layers.own) if name.startswith(PREFIX)}
    entries = []
    for name in _select(names, {**others, **BROKER_OPTIONS, **dict.fromkeys(prefixed)}):
        if name in prefixed:
            entries.append(_describe_for_listener(layers, name))
            continue
        row = BROKER_OPTIONS.get(name) or others[name]
        synonyms = _broker_synonyms(layers, row)
        # Only the value under its own name: an option that takes its value from another has none itself.
        own = next((synonym for synonym in synonyms if synonym.name == name), Synonym(name, None, DEFAULT))
        source = synonyms[0].source if synonyms else DEFAULT
        entries.append(ConfigEntry(row, own.value, source, row.live == READ_ONLY, synonyms))
    return entries


def _describe_for_listener(layers: Layers, name: str) -> ConfigEntry:
    """An option that is set for one listener. It overrides the value for all listeners, which is its synonym."""
    base = name.removeprefix(PREFIX).partition(".")[2]
    known = BROKER_OPTIONS.get(base)
    row = Option(
        PASSWORD if known is None else known.kind, None, ""
    )  # unknown ones are JAAS configs, which contain passwords
    row.name = row.attribute = name
    given = ((layers.own, THIS_BROKER), (layers.every, EVERY_BROKER), (layers.static.given, STATIC))
    synonyms = [
        Synonym(one, layer[one], source) for layer, source in given for one in (name, base) if known and one in layer
    ] or [Synonym(name, None, source) for layer, source in given if name in layer]
    if known is not None:
        synonyms += _default_synonyms(known)
    return ConfigEntry(row, synonyms[0].value, synonyms[0].source, True, synonyms)


def describe_every_broker(layers: Layers, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """Only what was set at runtime for all brokers."""
    entries = []
    for name in _select(names, layers.every):
        row, value = BROKER_OPTIONS[name], layers.every[name]
        entries.append(
            ConfigEntry(row, value, EVERY_BROKER, row.live == READ_ONLY, [Synonym(name, value, EVERY_BROKER)])
        )
    return entries


def _select(names: Iterable[str] | None, known: Mapping[str, object]) -> list[str]:
    return sorted(known) if names is None else [name for name in dict.fromkeys(names) if name in known]


def _broker_synonyms(layers: Layers, row: Option) -> list[Synonym]:
    names = (row.name, *(name for name, _ in row.chain))
    synonyms = [
        Synonym(name, layer[name], source)
        for layer, source in ((layers.own, THIS_BROKER), (layers.every, EVERY_BROKER), (layers.static.given, STATIC))
        for name in names
        if name in layer
    ]
    return synonyms + _default_synonyms(row)


_DEFAULTS: dict[Option, list[Synonym]] = {}  # computed once: every CreateTopics response lists all of them


def _default_synonyms(row: Option) -> list[Synonym]:
    known = _DEFAULTS.get(row)
    if known is None:
        rows = (row, *(BROKER_OPTIONS[name] for name, _ in row.chain))
        known = [Synonym(one.name, text_of(one.default), DEFAULT) for one in rows if one.default is not None]
        _DEFAULTS[row] = known
    return known
