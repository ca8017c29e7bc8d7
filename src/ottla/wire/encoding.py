"""Generates the source of an encoder: one function per message and version, which collects pieces and joins them once.

Adjacent fixed-size fields, old-form lengths and the zero byte of an empty tag section are packed by one `struct` call.
Varints come from a table. Tagged fields are written only if they differ from their default, in the order of their tags.
A value that does not fit its field (null where the version forbids it, a number too large) raises any Python exception:
that is a bug of the caller, not of the peer. The sliced form of an encoder is a generator that yields after each
element of a list.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from ottla.wire.schema import FRESH, Field, fields
from ottla.wire.text import FunctionText

if TYPE_CHECKING:
    from collections.abc import Sequence


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_KEPT_MAX: Final = 1 << 12


class _Varints(dict[int, bytes]):
    """Number → varint, made on first use; small ones are kept."""

    def __missing__(self, value: int) -> bytes:
        made = uvarint(value)
        if value < _KEPT_MAX:
            self[value] = made
        return made


VARINT: Final = _Varints()

_BYTES: Final = (bytes, memoryview, bytearray)


def source(cls: type, version: int, *, sliced: bool = False) -> tuple[str, dict[str, Any]]:
    """The source of `encode(o)` and the names it uses."""
    text = _EncoderText(cls, version, sliced=sliced)
    text.function(cls)
    return text.source, text.space


class _EncoderText(FunctionText):
    def __init__(self, cls: type, version: int, *, sliced: bool) -> None:
        super().__init__(cls, version, {"BYTES": _BYTES, "VARINT": VARINT, "pack": struct.pack}, sliced=sliced)
        self.run: list[tuple[str, str]] = []  # fixed-size values to be packed together: letter, value
        self.pieces: list[str] = []  # expressions to be added to the output together

    def function(self, cls: type) -> None:
        self.line("def encode(o):")
        self.depth += 1
        self.line("parts = []")
        self.line("out = []")
        if self.sliced:
            self.line("yield")
        self.struct(cls, "o")
        self.flush()
        self.line("if out or not parts: parts.append(b''.join(out))")
        self.line("return parts")

    def constant(self, stem: str, value: Any) -> str:
        name = self.fresh(stem)
        self.space[name] = value
        return name

    def close_run(self) -> None:
        """Turn the pending fixed-size values into one piece."""
        if not self.run:
            return
        letters = "".join(letter for letter, _ in self.run)
        values = ", ".join(value for letter, value in self.run if letter != "x")
        if not values:
            self.pieces.append(repr(bytes(len(letters))))
        else:
            name = "pack_" + letters.replace("?", "t")
            self.space[name] = struct.Struct(f">{letters}").pack
            self.pieces.append(f"{name}({values})")
        self.run.clear()

    def piece(self, *expressions: str) -> None:
        self.close_run()
        self.pieces.extend(expressions)

    def flush(self) -> None:
        """Emit the pending pieces."""
        self.close_run()
        if len(self.pieces) == 1:
            self.line(f"out.append({self.pieces[0]})")
        elif self.pieces:
            self.line(f"out += {', '.join(self.pieces)}")
        self.pieces.clear()

    def struct(self, cls: type, value: str) -> None:
        here = [field for field in fields(cls) if field.present(self.version)]
        for field in here:
            if field.tag is None:
                self.field(field, f"{value}.{field.name}")
        if self.flexible:
            self.tags([field for field in here if field.tag is not None], value)

    def tags(self, known: Sequence[Field], value: str) -> None:
        if not known:
            self.run.append(("x", ""))
            return
        known = sorted(known, key=lambda field: field.tag or 0)
        tests = [self.differs(field, f"{value}.{field.name}") for field in known]
        self.flush()
        self.line(f"if {' or '.join(tests)}:")
        self.depth += 1
        outer, inner, n, body = (self.fresh(stem) for stem in ("outer", "inner", "n", "body"))
        self.line(f"{outer} = out; {inner} = []; {n} = 0")
        for field, test in zip(known, tests, strict=True):
            self.line(f"if {test}:")
            self.depth += 1
            self.line("out = []")
            self.field(field, f"{value}.{field.name}")
            self.flush()
            self.line(f"{body} = b''.join(out); {n} += 1")
            self.line(f"{inner} += VARINT[{field.tag}], VARINT[len({body})], {body}")
            self.depth -= 1
        self.line(f"out = {outer}; out.append(VARINT[{n}]); out += {inner}")
        self.depth -= 1
        self.line("else:")
        self.line("    out.append(b'\\0')")

    def differs(self, field: Field, value: str) -> str:
        """An expression: does the value differ from the field's default?"""
        if field.default is None:
            return f"{value} is not None"
        if field.default is FRESH:
            return f"({value} is None or {value})" if field.may_be_null(self.version) else value
        if field.struct is not None:
            parts = [part for part in fields(field.struct) if part.present(self.version)]
            inner = " or ".join(self.differs(part, f"{value}.{part.name}") for part in parts)
            return f"({value} is not {self.constant('absent', field.default)} and ({inner}))"
        return f"{value} != {field.default!r}"

    def field(self, field: Field, value: str) -> None:
        nullable = field.may_be_null(self.version)
        if field.kind == "fixed" and not field.array:
            self.run.append((field.format, value))
        elif field.array:
            self.array(field, value, nullable)
        elif field.struct is not None:
            self.one_struct(field.struct, value, nullable)
        elif field.kind == "records":
            self.records(field, value, nullable)
        else:
            self.text(field, value, nullable)

    def one_struct(self, cls: type, value: str, nullable: bool) -> None:
        name = self.fresh("o")
        if not nullable:
            self.line(f"{name} = {value}")
            self.struct(cls, name)
            return
        self.flush()
        self.line(f"{name} = {value}")
        self.line(f"if {name} is None: out.append(b'\\xff')")
        self.line("else:")
        self.depth += 1
        self.piece("b'\\1'")
        self.struct(cls, name)
        self.flush()
        self.depth -= 1

    def text(self, field: Field, value: str, nullable: bool) -> None:
        """A string or blob: its length and its bytes."""
        raw = self.fresh("s")
        bare = f"{value}.encode()" if field.kind == "string" else value
        if nullable:
            n = self.fresh("n")
            self.line(f"{raw} = {value}")
            self.line(f"if {raw} is None: {raw} = b''; {n} = {self.none(field)}")
            encoded = f"{raw} = {raw}.encode(); " if field.kind == "string" else ""
            self.line(f"else: {encoded}{n} = {self.some(field, f'len({raw})')}")
            self.length(field, n)
        else:
            self.line(f"{raw} = {bare}")
            self.length(field, self.some(field, f"len({raw})"))
        self.piece(raw)

    def array(self, field: Field, value: str, nullable: bool) -> None:
        name = self.fresh("a")
        self.line(f"{name} = {value}")
        if nullable:
            n = self.fresh("n")
            self.line(f"if {name} is None: {name} = (); {n} = {self.none(field)}")
            self.line(f"else: {n} = {self.some(field, f'len({name})')}")
            self.length(field, n)
        else:
            self.length(field, self.some(field, f"len({name})"))
        if field.kind == "fixed":
            letters = f"'16s' * len({name})" if field.format == "16s" else f"f'{{len({name})}}{field.format}'"
            self.piece(f"pack('>' + {letters}, *{name})")
            return
        self.flush()
        element = self.fresh("o")
        self.line(f"for {element} in {name}:")
        self.depth += 1
        if field.struct is not None:
            before = len(self.lines)
            self.struct(field.struct, element)
            self.flush()
            if len(self.lines) == before:
                self.line("pass")
        else:
            self.field(field._replace(array=False, nullable=None), element)
            self.flush()
        if self.sliced:
            self.line("yield")
        self.depth -= 1

    def records(self, field: Field, value: str, nullable: bool) -> None:
        """Bytes are added to the current piece. A region ends that piece and goes into the list itself."""
        name, n = self.fresh("r"), self.fresh("n")
        self.line(f"{name} = {value}")
        size = f"(len({name}) if isinstance({name}, BYTES) else {name}.size)"
        if nullable:
            self.line(f"{n} = {self.none(field)} if {name} is None else {self.some(field, size)}")
        else:
            self.line(f"{n} = {self.some(field, size)}")
        self.length(field, n)
        self.flush()
        self.line(f"if isinstance({name}, BYTES): out.append({name})")
        self.line(f"elif {name} is not None: parts.append(b''.join(out)); parts.append({name}); out.clear()")

    def none(self, field: Field) -> str:
        return "b'\\0'" if self.flexible and field.compact else "-1"

    def some(self, field: Field, length: str) -> str:
        return f"VARINT[{length} + 1]" if self.flexible and field.compact else length

    def length(self, field: Field, n: str) -> None:
        if self.flexible and field.compact:
            self.piece(n)
        else:
            self.run.append(("h" if field.kind == "string" and not field.array else "i", n))
