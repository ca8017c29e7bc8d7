"""Generates the source of a decoder: one function per message and version, linear, without a call per field.

What makes it fast and safe:

- Adjacent fields of fixed size are read by one `struct` call, with the first byte of the length that follows them.
- Most varints have one byte and are read inline; only longer ones cost a call.
- Objects are made without calling their constructor; a scalar that the version lacks is a default on the class.
- A slice past the end is short and leaves `pos` past the end. Every later read then fails, and so does the check before
  the return. So strings need no check of their own, but counts do: `n` elements of at least `m` bytes need `n * m`
  bytes, and are refused before a list is made.
- An object is some fifty times larger than the smallest encoding of it, so the number of objects is limited as well. So
  is the number of tagged fields, which cost time.
- The sliced form of a decoder is a generator that yields after each element of a list, for messages that take long.
- Null is any negative length in the old form, 0 in the compact form. A nullable struct has a byte before it: negative
  for null, or 0 for null in a tagged field.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from ottla.wire.schema import FRESH, Field, fields
from ottla.wire.text import FunctionText

if TYPE_CHECKING:
    from collections.abc import Sequence


class DecodeError(ValueError):
    """The bytes are not a message of that kind and version."""


ELEMENTS_MAX: Final = 1 << 22
"""The most elements of all arrays of one message together, unless stated otherwise: for responses that we requested."""

REQUEST_ELEMENTS_MAX: Final = 1 << 16
"""The same for a request: several times the partitions of the largest broker. With the answer to each that is some tens
of megabytes, and some tens of milliseconds to free them, which cannot be interrupted."""

MEMBERS_ELEMENTS_MAX: Final = 1 << 19
"""The same for inter-broker requests. A controller sends all partitions in one request, each with its replicas: this is
enough for 75,000 partitions with three replicas."""

RECORDS_ELEMENTS_MAX: Final = 1 << 14
"""The same for a request with records. Its frame is valid for one turn, so it is decoded in one go."""

STRING_SIZE_MAX: Final = 0x7FFF
"""Kafka's limit for a string in either form."""

_SIZE: Final = {code: struct.calcsize(f">{code}") for code in ["?", "b", "B", "h", "H", "i", "I", "q", "d", "16s"]}


def uvarint(buf: Any, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                raise DecodeError("a varint has more than 32 bits")
            return value, pos
        shift += 7
        if shift > 28:
            raise DecodeError("a varint is longer than five bytes")


def skip_tags(buf: Any, pos: int, left: int = RECORDS_ELEMENTS_MAX) -> tuple[int, int]:
    """Skip a section of unknown tagged fields. Returns the position after it, and what remains of `left` elements."""
    n, pos = uvarint(buf, pos)
    size = len(buf)
    if n > left:
        raise count("tagged fields", n)
    for _ in range(n):
        _, pos = uvarint(buf, pos)
        length, pos = uvarint(buf, pos)
        pos += length
        if pos > size:
            raise DecodeError("a tagged field reaches past the end")
    return pos, left - n


def null(name: str) -> DecodeError:
    return DecodeError(f"{name} must not be null")


def count(name: str, n: int) -> DecodeError:
    return DecodeError(f"{name} declares {n} elements, more than there are bytes for or than one message may have")


def long_string(name: str) -> DecodeError:
    return DecodeError(f"{name} is longer than {STRING_SIZE_MAX} bytes")


def source(cls: type, version: int, *, sliced: bool = False) -> tuple[str, dict[str, Any]]:
    """The source of `decode(buf, pos, left)` and the names it uses."""
    text = _DecoderText(cls, version, sliced=sliced)
    text.function(cls)
    return text.source, text.space


class _DecoderText(FunctionText):
    def __init__(self, cls: type, version: int, *, sliced: bool) -> None:
        space = {
            "DecodeError": DecodeError, "ELEMENTS_MAX": ELEMENTS_MAX, "count": count, "new": object.__new__,
            "FAILURES": (struct.error, IndexError, UnicodeDecodeError), "null": null, "skip_tags": skip_tags,
            "STRING_SIZE_MAX": STRING_SIZE_MAX, "long_string": long_string,
            "unpack_from": struct.unpack_from, "uvarint": uvarint,
        }  # fmt: skip
        super().__init__(cls, version, space, sliced=sliced)
        self.run: list[tuple[str, str]] = []  # fixed-size reads to be done together: letter, target

    def function(self, cls: type) -> None:
        self.line("def decode(buf, pos, left=ELEMENTS_MAX):")
        self.depth += 1
        self.line("size = len(buf)")
        if self.sliced:
            self.line("yield")
        if has_records(cls, self.version):
            self.line("view = buf if type(buf) is memoryview else memoryview(buf)")
        self.line("try:")
        self.depth += 1
        made = self.struct(cls)
        self.flush()
        self.depth -= 1
        self.line("except FAILURES as error:")
        self.line(f"    raise DecodeError(f'{cls.__name__} v{self.version}: {{error}}') from None")
        self.line("if pos > size:")
        self.line(f"    raise DecodeError('{cls.__name__} v{self.version} ends before its last field')")
        self.line(f"return {made}, pos")

    def flush(self) -> None:
        """Emit the pending fixed-size reads."""
        if not self.run:
            return
        letters = "".join(letter for letter, _ in self.run)
        targets = ", ".join(target for _, target in self.run)
        size = sum(_SIZE[letter] for letter, _ in self.run)
        if letters == "B":
            self.line(f"{targets} = buf[pos]; pos += 1")
        else:
            name = "unpack_" + letters.replace("?", "t")
            self.space[name] = struct.Struct(f">{letters}").unpack_from
            self.line(f"{targets}{',' if len(self.run) == 1 else ''} = {name}(buf, pos); pos += {size}")
        self.run.clear()

    def struct(self, cls: type) -> str:
        made = self.fresh("o")
        self.space[cls.__name__] = cls
        self.line(f"{made} = new({cls.__name__})")
        here = [field for field in fields(cls) if field.present(self.version)]
        for field in fields(cls):
            if field.default is FRESH and (field.tag is not None or not field.present(self.version)):
                self.line(f"{made}.{field.name} = []")
        for field in here:
            if field.tag is None:
                self.field(field, f"{made}.{field.name}")
        if self.flexible:
            self.tags(made, [field for field in here if field.tag is not None])
        return made

    def tags(self, made: str, known: Sequence[Field]) -> None:
        n = self.fresh("t")
        self.run.append(("B", n))
        self.flush()
        self.line(f"if {n}:")
        self.depth += 1
        if not known:
            self.line("pos, left = skip_tags(buf, pos - 1, left)")
            self.depth -= 1
            return
        tag, end = self.fresh("tag"), self.fresh("end")
        self.line(f"if {n} > 127: {n}, pos = uvarint(buf, pos - 1)")
        self.line(f"left -= {n}")
        self.line(f"if left < 0: raise count('tagged fields', {n})")
        self.line(f"for _ in range({n}):")
        self.depth += 1
        self.line(f"{tag}, pos = uvarint(buf, pos)")
        self.line(f"{end}, pos = uvarint(buf, pos)")
        self.line(f"{end} += pos")
        word = "if"
        for field in known:
            self.line(f"{word} {tag} == {field.tag}:")
            self.depth += 1
            self.field(field, f"{made}.{field.name}")
            self.flush()
            self.depth -= 1
            word = "elif"
        self.line("else:")
        self.line(f"    pos = {end}")
        self.line(f"if pos != {end} or pos > size: raise DecodeError('a tagged field does not fill its size')")
        self.depth -= 2

    def field(self, field: Field, target: str) -> None:
        nullable = field.may_be_null(self.version)
        if field.kind == "fixed" and not field.array:
            self.run.append((field.format, target))
        elif field.struct is not None and not field.array:
            self.one_struct(field.struct, target, nullable, field.tag is not None)
        else:
            n = self.length(field)
            compact = self.flexible and field.compact
            absent = f"not {n}" if compact else f"{n} < 0"
            self.line(f"if {absent}:")
            self.line(f"    {target} = None" if nullable else f"    raise null('{field.name}')")
            self.line("else:")
            self.depth += 1
            if field.array:
                if compact:
                    self.line(f"{n} -= 1")
                self.array(field, target, n)
            else:
                if compact and field.kind == "string":
                    self.line(f"if {n} > STRING_SIZE_MAX + 1: raise long_string('{field.name}')")
                self.line(f"end = pos + {n}{' - 1' if compact else ''}")
                self.line(f"{target} = {_slice(field.kind)}; pos = end")
            self.depth -= 1

    def length(self, field: Field) -> str:
        n = self.fresh("n")
        if self.flexible and field.compact:
            self.run.append(("B", n))
            self.flush()
            self.line(f"if {n} > 127: {n}, pos = uvarint(buf, pos - 1)")
        else:
            self.run.append(("h" if field.kind == "string" and not field.array else "i", n))
            self.flush()
        return n

    def one_struct(self, cls: type, target: str, nullable: bool, tagged: bool) -> None:
        if not nullable:
            self.line(f"{target} = {self.struct(cls)}")
            return
        n = self.fresh("n")
        self.run.append(("b", n))
        self.flush()
        self.line(f"if {n} {'<=' if tagged else '<'} 0:")
        self.line(f"    {target} = None")
        self.line("else:")
        self.depth += 1
        self.line(f"{target} = {self.struct(cls)}")
        self.flush()
        self.depth -= 1

    def array(self, field: Field, target: str, n: str) -> None:
        least = _least(field, self.version, self.flexible)
        needed = f"{n} * {least}" if least > 1 else n
        if field.kind == "fixed":
            self.line(f"left -= {n}")
            self.line(f"if {needed} > size - pos or left < 0: raise count('{field.name}', {n})")
            width = _SIZE[field.format]
            if field.format == "16s":
                self.line(f"{target} = [bytes(buf[at : at + 16]) for at in range(pos, pos + 16 * {n}, 16)]")
            else:
                self.line(f"{target} = list(unpack_from(f'>{{{n}}}{field.format}', buf, pos))")
            self.line(f"pos += {n}{f' * {width}' if width > 1 else ''}")
            return
        self.line(f"left -= {n}")
        self.line(f"if {needed} > size - pos or left < 0: raise count('{field.name}', {n})")
        made = self.fresh("a")
        self.line(f"{target} = {made} = []")
        self.line(f"for _ in range({n}):")
        self.depth += 1
        if field.struct is not None:
            element = self.struct(field.struct)
            self.flush()
        else:
            element = self.fresh("s")
            self.field(field._replace(array=False, nullable=None), element)
        self.line(f"{made}.append({element})")
        if self.sliced:
            self.line("yield")
        self.depth -= 1


def _slice(kind: str) -> str:
    return {"string": "str(buf[pos:end], 'utf-8')", "blob": "bytes(buf[pos:end])", "records": "view[pos:end]"}[kind]


def has_records(cls: type, version: int) -> bool:
    return any(
        field.kind == "records" or (field.struct is not None and has_records(field.struct, version))
        for field in fields(cls)
        if field.present(version)
    )


def _least(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes of one element of the array: at least 1, otherwise any count would be accepted."""
    if field.kind == "fixed":
        return _SIZE[field.format]
    if field.struct is not None:
        return max(1, _least_struct(field.struct, version, flexible))
    return 1 if flexible else 2 if field.kind == "string" else 4


def _least_struct(cls: type, version: int, flexible: bool) -> int:
    total = 1 if flexible else 0
    for field in fields(cls):
        if not field.present(version) or field.tag is not None:
            continue
        compact = flexible and field.compact
        if field.array:
            total += 1 if compact else 4
        elif field.kind == "fixed":
            total += _SIZE[field.format]
        elif field.struct is not None:
            total += 1 if field.may_be_null(version) else _least_struct(field.struct, version, flexible)
        else:
            total += 1 if compact else 2 if field.kind == "string" else 4
    return total
