"""How a Kafka message is declared: the field types, `@message`, `@nested` and `at()`. No encoding here.

A message is a class whose annotations are its fields in wire order. The annotation gives the kind, `| None` means that
null may be sent, and `at()` gives the versions of the field, its tag, and its value if it is absent:

    @message(0, versions=(0, 13), flexible=9)
    class ProduceRequest:
        transactional_id: string | None = at(3, default=None)
        acks: i16

The type checker sees `acks` as an `int` and a constructor with keyword arguments only. A field without `at()`, and one
whose `at()` has neither `default` nor `factory`, is a required argument. In a version that lacks the field a decoder
sets this default or, if there is none, that of its kind: 0, False, "", b"", [], sixteen zero bytes, null for records, a
struct of defaults for a struct.

There are hundreds of these classes and a broker uses few of them, so the decorators only store a spec on the class. The
first construction, decoding or encoding parses the annotations (as text: they are never evaluated) and compiles
`__init__`. Scalar defaults are then on the class, so an instance stores only what its version contains; an absent
struct is one shared instance that refuses assignment.
"""

from __future__ import annotations

import sys
import threading
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NamedTuple,
    NoReturn,
    Protocol,
    TypeVar,
    cast,
    dataclass_transform,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LAST: Final = 32767
"""The `until` of a field that no version has dropped: the largest possible version number."""

ZERO_UUID: Final = bytes(16)


class Region(Protocol):
    """Record bytes that are not in memory, such as a slice of a segment file. The encoder writes their length only."""

    @property
    def size(self) -> int: ...


class Wire(NamedTuple):
    """How one kind of field is encoded: `format` is the `struct` letter of a fixed-size kind."""

    kind: str
    format: str
    default: Any


i8 = Annotated[int, Wire("fixed", "b", 0)]
i16 = Annotated[int, Wire("fixed", "h", 0)]
i32 = Annotated[int, Wire("fixed", "i", 0)]
i64 = Annotated[int, Wire("fixed", "q", 0)]
u16 = Annotated[int, Wire("fixed", "H", 0)]
u32 = Annotated[int, Wire("fixed", "I", 0)]
f64 = Annotated[float, Wire("fixed", "d", 0.0)]
boolean = Annotated[bool, Wire("fixed", "?", False)]
uuid = Annotated[bytes, Wire("fixed", "16s", ZERO_UUID)]
string = Annotated[str, Wire("string", "", "")]
blob = Annotated[bytes, Wire("blob", "", b"")]
# Record bytes decode to a view of the frame. In a request we read them; in a response they may also be a file region.
records_in = Annotated[memoryview, Wire("records", "", None)]
records_out = Annotated[memoryview | bytes | Region, Wire("records", "", None)]

_KINDS: Final[dict[str, Wire]] = {
    name: cast("Any", alias).__metadata__[0]
    for name, alias in {
        "i8": i8, "i16": i16, "i32": i32, "i64": i64, "u16": u16, "u32": u32, "f64": f64, "boolean": boolean,
        "uuid": uuid, "string": string, "blob": blob, "records_in": records_in, "records_out": records_out,
    }.items()
}  # fmt: skip


class Field(NamedTuple):
    """One declared field. `nullable` is the range of versions in which null may be sent, or None."""

    name: str
    kind: str  # fixed, string, blob, records or struct
    format: str
    struct: type | None
    array: bool
    since: int
    until: int
    nullable: tuple[int, int] | None
    tag: int | None
    default: Any  # FRESH for a list that starts empty
    required: bool  # by the constructor
    compact: bool  # False: keeps the old length prefix in flexible versions

    def present(self, version: int) -> bool:
        return self.since <= version <= self.until

    def may_be_null(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]


class _Missing:
    def __repr__(self) -> str:
        return "..."


MISSING: Final = _Missing()
FRESH: Final = _Missing()


class _At(NamedTuple):
    since: int
    until: int
    tag: int | None
    default: Any
    nullable: int | tuple[int, int] | None
    compact: bool


def at(
    since: int = 0,
    until: int = LAST,
    *,
    tag: int | None = None,
    default: Any = MISSING,
    factory: Any = MISSING,
    nullable: int | tuple[int, int] | None = None,
    compact: bool = True,
) -> Any:
    """Declare the versions of a field. `nullable` limits `| None` to the versions from a number on, or to a range.

    `factory` is `list`, or the class of a struct; it only tells the type checker that there is a default.
    """
    return _At(since, until, tag, FRESH if factory is not MISSING else default, nullable, compact)


class Spec:
    """The spec of a class, stored by its decorator. `fields` is set on first use."""

    __slots__ = ("cls", "fields", "flexible", "key", "name", "versions")

    def __init__(self, cls: type, key: int | None, versions: tuple[int, int], flexible: int) -> None:
        self.cls = cls
        self.name = cls.__name__
        self.key = key
        self.versions = versions
        self.flexible = flexible
        self.fields: tuple[Field, ...] | None = None


Cls = TypeVar("Cls", bound=type)
# Threads may use a class for the first time at the same moment.
_COMPLETING: Final = threading.RLock()


@dataclass_transform(kw_only_default=True, field_specifiers=(at,))
def nested(cls: Cls) -> Cls:
    """A struct inside messages. It has no versions of its own; `at()` refers to those of the enclosing message."""
    return _note(cls, Spec(cls, None, (0, LAST), LAST + 1))


@dataclass_transform(kw_only_default=True, field_specifiers=(at,))
def message(key: int | None, versions: tuple[int, int], flexible: int | None = None) -> Callable[[Cls], Cls]:
    """A request or response of API `key`; None for other encoded data (headers, records, group metadata).

    `flexible` is the first version with compact lengths and tagged fields; None: no version has them.
    """
    first = LAST + 1 if flexible is None else flexible

    def decorate(cls: Cls) -> Cls:
        return _note(cls, Spec(cls, key, versions, first))

    return decorate


def spec(cls: type) -> Spec:
    """The spec of a message class: key, versions, first flexible version, and its fields."""
    found: Spec = cls.__wire__  # type: ignore[attr-defined]
    if found.fields is None:
        with _COMPLETING:
            if found.fields is None:
                _complete(found)
    return found


def fields(cls: type) -> tuple[Field, ...]:
    found = spec(cls).fields
    assert found is not None, "spec() completes the class"
    return found


def _note(cls: Cls, found: Spec) -> Cls:
    cls.__wire__ = found  # type: ignore[attr-defined]
    cls.__init__ = _init  # type: ignore[misc]
    cls.__eq__ = _equal  # type: ignore[method-assign,assignment]
    cls.__hash__ = None  # type: ignore[assignment]
    cls.__repr__ = _show  # type: ignore[method-assign,assignment]
    return cls


def _init(self: Any, **values: Any) -> None:
    """The `__init__` until the class is complete."""
    spec(type(self))
    type(self).__init__(self, **values)


def _equal(self: Any, other: object) -> Any:
    mine: Spec = self.__wire__
    if mine is not getattr(other, "__wire__", None):
        return NotImplemented
    return all(getattr(self, field.name) == getattr(other, field.name) for field in fields(mine.cls))


def _show(self: Any) -> str:
    mine: Spec = self.__wire__
    return f"{mine.name}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(mine.cls))})"


def _complete(found: Spec) -> None:
    """Parse the annotations, put the defaults on the class and compile its constructor."""
    cls = found.cls
    names = vars(sys.modules[cls.__module__])
    parsed = tuple(_field(cls, name, text, names) for name, text in cls.__annotations__.items())
    for field in parsed:
        if field.default is not FRESH:
            setattr(cls, field.name, field.default)
        elif field.name in cls.__dict__:
            delattr(cls, field.name)
    cls.__init__ = _constructor(cls, parsed)  # type: ignore[misc]
    found.fields = parsed  # last, because a thread that sees them expects everything else to be done


def _field(cls: type, name: str, text: str, names: dict[str, Any]) -> Field:
    """One annotation: `i32`, `string | None`, `list[Topic]`, `list[i32] | None`."""
    noted = cls.__dict__.get(name)
    place = noted if isinstance(noted, _At) else _At(0, LAST, None, MISSING, None, True)
    inner = text.removesuffix(" | None")
    array = inner.startswith("list[")
    word = inner[5:-1] if array else inner
    struct = None if word in _KINDS else names[word]
    wire = _KINDS.get(word, Wire("struct", "", None))
    nullable = None
    if inner != text:
        low, high = (place.nullable, place.until) if isinstance(place.nullable, int) else place.nullable or place[:2]
        nullable = (max(low, place.since), min(high, place.until))
    required = place.default is MISSING
    default = place.default
    if required or default is FRESH:
        default = FRESH if array else wire.default if struct is None else _absent(struct)
    return Field(
        name, wire.kind, wire.format, struct, array, place.since, place.until, nullable, place.tag, default, required,
        place.compact,
    )  # fmt: skip


def _constructor(cls: type, parsed: tuple[Field, ...]) -> Any:
    """Compile `__init__` with a keyword argument for each field."""
    keywords, body, space = [], [], {"FRESH": FRESH}
    for field in parsed:
        name = field.name
        value = name
        if not field.required:
            keywords.append(f"{name}=_{name}")
            space[f"_{name}"] = field.default
            value = f"[] if {name} is FRESH else {name}" if field.default is FRESH else name
        else:
            keywords.append(name)
        body.append(f"    self.{name} = {value}")
    head = f"def __init__(self, *, {', '.join(keywords)}):" if keywords else "def __init__(self):"
    exec("\n".join([head, *(body or ["    pass"])]), space)  # nosec B102 # the text is made of our own schemas
    made: Any = space["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


_ABSENT: Final[dict[type, Any]] = {}


def _absent(struct: type) -> Any:
    """The value of an absent struct field: all defaults, and shared, so it must not be changed in place."""
    found = _ABSENT.get(struct)
    if found is None:
        shared = type(struct.__name__, (struct,), {"__setattr__": _refuse, "__slots__": ()})
        found = _ABSENT[struct] = object.__new__(shared)
        for field in fields(struct):
            if field.default is FRESH:
                object.__setattr__(found, field.name, [])
    return found


def _refuse(self: Any, name: str, value: Any) -> NoReturn:
    raise TypeError(f"{type(self).__name__} stands for a field that was left out and is shared: assign a new one")
