"""One option is one row: its name, type, default, bounds and documentation are defined only there.

A table is a class whose attributes are rows:

    class BrokerConfig:
        log_segment_bytes: int = integer(1 << 30, "Roll a segment at this size.", least=14)

The attribute is the option's name with underscores for dots. To the type checker it is the value (`int`); on the class
it is the row, on an instance the value. Parsing, defaults, DescribeConfigs, docs and suggestions all read the rows.
Error texts are Kafka's, because admin clients show them and scripts match on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

# How an option may change while the broker runs, in the words of Kafka's documentation.
READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"

HIGH = "high"
MEDIUM = "medium"
LOW = "low"

BOOLEAN = "BOOLEAN"
STRING = "STRING"
INT = "INT"
SHORT = "SHORT"
LONG = "LONG"
DOUBLE = "DOUBLE"
LIST = "LIST"
CLASS = "CLASS"
PASSWORD = "PASSWORD"  # nosec B105 # the name of a type

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
_BITS = {INT: 32, SHORT: 16, LONG: 64}

Value = int | float | bool | str | tuple[str, ...] | None


class ConfigError(ValueError):
    """An option that is unknown, malformed or invalid; the message names it."""


class Refusals:
    """Collects all errors in a set of options, so that users can fix them together.

    with refusals: ...      catches and keeps a ConfigError that is raised inside
    """

    def __init__(self) -> None:
        self._found: dict[str, None] = {}  # in order, each once

    def add(self, reason: str) -> None:
        self._found[reason] = None

    def raise_all(self) -> None:
        """Raises ConfigError with one line per error, if there are any."""
        if self._found:
            raise ConfigError("\n".join(self._found))

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ConfigError):
            return False
        self.add(str(error))
        return True


class Option:
    """A row. `chain` lists (option, factor): the options to take the value from if this one is not set."""

    __slots__ = (
        "also",
        "attribute",
        "chain",
        "choices",
        "default",
        "differs",
        "doc",
        "idle",
        "importance",
        "kind",
        "least",
        "live",
        "most",
        "name",
        "pattern",
    )

    attribute: str
    name: str

    def __init__(
        self,
        kind: str,
        default: Value,
        doc: str,
        *,
        least: float | None = None,
        most: float | None = None,
        also: int | None = None,
        choices: tuple[str, ...] = (),
        live: str = READ_ONLY,
        importance: str = MEDIUM,
        chain: tuple[tuple[str, int], ...] = (),
        pattern: str = "",
        differs: str = "",
        idle: str = "",
    ) -> None:
        self.kind = kind
        self.default = default
        self.doc = doc
        self.least = least
        self.most = most
        self.also = also
        self.choices = choices
        self.live = live
        self.importance = importance
        self.chain = chain
        self.pattern = pattern
        self.differs = differs  # why our default or bound differs from Kafka's, if it does
        self.idle = idle  # why it has no effect, if it has none: it is accepted, kept and shown, but not read

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute
        self.name = attribute.replace("_", ".")

    def __repr__(self) -> str:
        return f"Option({self.name})"

    @property
    def sensitive(self) -> bool:
        return self.kind == PASSWORD

    def parse(self, text: str) -> Value:
        """Parse a value. ConfigError if it is malformed or out of bounds."""
        value = _parse(self.kind, self.name, text)
        self._check(value)
        return value

    def _check(self, value: Value) -> None:
        if isinstance(value, tuple):
            for item in value:
                if not item:
                    raise ConfigError(f"Configuration '{self.name}' values must not be empty.")
                self._check_choice(item)
            if self.pattern and value != ("*",):
                _check_pattern(self.name, self.pattern, value)
        elif isinstance(value, str):
            self._check_choice(value)
        elif value is not None and value != self.also:
            self._check_bounds(value)

    def _check_choice(self, item: str) -> None:
        if self.choices and item not in self.choices:
            raise invalid(item, self.name, f"String must be one of: {', '.join(self.choices)}")

    def _check_bounds(self, value: float) -> None:
        low = self.least is not None and value < self.least
        high = self.most is not None and value > self.most
        if self.also is not None and (low or high):
            span = f"Value must be between {self.least} and {self.most} or equal to {self.also}"
            raise invalid(text_of(value), self.name, span)
        if low:
            raise invalid(text_of(value), self.name, f"Value must be at least {self.least}")
        if high:
            raise invalid(text_of(value), self.name, f"Value must be no more than {self.most}")


def invalid(value: str | None, name: str, reason: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}")


def text_of(value: Value) -> str | None:
    """A value as Kafka prints it: in DescribeConfigs, in properties files and in error messages."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        text = repr(value)
        if "e" in text:
            mantissa, _, exponent = text.partition("e")
            text = f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
        return text
    return str(value)


def rows(table: type) -> dict[str, Option]:
    """The rows of a table by option name, in source order, those of its base tables first."""
    known = (row for one in reversed(table.__mro__) for row in vars(one).values())
    return {row.name: row for row in known if isinstance(row, Option)}


class Table:
    """An immutable set of values, one per row. Rows are on the class, values on the instance."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"configurations are replaced, not changed: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = object.__hash__


def integer(default: int | None, doc: str, **rest: Any) -> int:
    return cast("int", Option(INT, default, doc, **rest))


def short(default: int | None, doc: str, **rest: Any) -> int:
    return cast("int", Option(SHORT, default, doc, **rest))


def long(default: int | None, doc: str, **rest: Any) -> int:
    return cast("int", Option(LONG, default, doc, **rest))


def double(default: float, doc: str, **rest: Any) -> float:
    return cast("float", Option(DOUBLE, default, doc, **rest))


def boolean(default: bool, doc: str, **rest: Any) -> bool:
    return cast("bool", Option(BOOLEAN, default, doc, **rest))


def string(default: str, doc: str, **rest: Any) -> str:
    return cast("str", Option(STRING, default, doc, **rest))


def maybe(doc: str, **rest: Any) -> str | None:
    """A string that may be absent."""
    return cast("str | None", Option(STRING, None, doc, **rest))


def secret(doc: str, **rest: Any) -> str | None:
    """A string that may be absent and is never shown."""
    return cast("str | None", Option(PASSWORD, None, doc, **rest))


def strings(default: tuple[str, ...] | None, doc: str, **rest: Any) -> tuple[str, ...]:
    return cast("tuple[str, ...]", Option(LIST, default, doc, **rest))


def _parse(kind: str, name: str, text: str) -> Value:
    stripped = text.strip()
    if kind == BOOLEAN:
        if stripped.lower() not in ("true", "false"):
            raise invalid(stripped, name, "Expected value to be either true or false")
        return stripped.lower() == "true"
    if kind in _BITS:
        return _whole(kind, name, stripped)
    if kind == DOUBLE:
        try:
            return float(stripped.replace("_", "x"))
        except ValueError:
            raise invalid(stripped, name, "Not a number of type DOUBLE") from None
    if kind == LIST:
        return tuple(part.strip() for part in stripped.split(",")) if stripped else ()
    return stripped


def _whole(kind: str, name: str, text: str) -> int:
    # int() accepts more than Java's parser: underscores, spaces after a sign, and digits of other scripts.
    try:
        value = int(text) if text.isascii() and text.lstrip("+-").isdigit() else None
    except ValueError:
        value = None
    if value is None or not -(1 << _BITS[kind] - 1) <= value < 1 << _BITS[kind] - 1:
        raise invalid(text, name, f"Not a number of type {kind}")
    return value


def _check_pattern(name: str, pattern: str, value: tuple[str, ...]) -> None:
    import re  # only the throttled-replica lists have a pattern

    if not all(re.fullmatch(pattern, item) for item in value):
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        reason = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
        raise invalid(f"[{', '.join(value)}]", name, reason)
