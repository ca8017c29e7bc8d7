"""The language of regular expressions: from text to a graph.

    a  .  [a-z]  [^a-z]  [[:alpha:]]  \\d \\D \\s \\S \\w \\W  \\. \\n \\x2e \\x{2e} \\056 \\Q...\\E      one character
    xy  x|y  x* x+ x? x{n} x{n,} x{n,m}  and the lazy forms of these                                combinations
    (x)  (?:x)  (?P<name>x)  (?<name>x)  (?i) (?s) (?m) (?U) and (?i:x)                             groups and flags
    ^  $  \\A  \\z  \\b  \\B                                                                          places

As in RE2 there are no back references and no looking around; classes of Unicode (\\p) are left out too, for topic names
have none of these characters.
"""

from __future__ import annotations

import string
from typing import Final

from ottla.coord.groups.regex_graph import (
    EDGE,
    END,
    LINE_END,
    LINE_START,
    NO_EDGE,
    START,
    WORD,
    Graph,
    PatternError,
)

LENGTH_MAX: Final = 1000
REPEATS_MAX: Final = 1000  # RE2's

_DIGIT = frozenset(string.digits)
_SPACE = frozenset("\t\n\f\r ")
_PERL: Final = {"d": _DIGIT, "s": _SPACE, "w": WORD}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": _DIGIT,
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL: Final = frozenset(string.octdigits)
_ALL: Final = frozenset(map(chr, range(128)))


def parsed(text: str) -> Graph:
    """The graph of a pattern, or PatternError."""
    return Parser(text).graph


def _unquoted(text: str) -> str:
    """The pattern with backslashes in place of \\Q and \\E."""
    found, at = [], 0
    while at < len(text):
        if text.startswith("\\Q", at):
            quoted, _, rest = text[at + 2 :].partition("\\E")
            found += [one if one.isalnum() or one == "_" else f"\\{one}" for one in quoted]
            at = len(text) - len(rest)
        else:
            length = 2 if text[at] == "\\" else 1
            found.append(text[at : at + length])
            at += length
    return "".join(found)


Piece = tuple[int, int]  # the first and the last node of a part of the graph


class Parser:
    """Reads a pattern from left to right into a graph."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise PatternError(f"longer than {LENGTH_MAX} characters")
        self.text = _unquoted(text)
        self.at = 0
        self.depth = 0
        self.fold = self.dot_all = self.lines = False
        self.names: dict[str, int] = {}  # of groups, and where they are
        self.graph = Graph()
        first, last = self._choice()
        if self.at < len(self.text):
            raise PatternError(f"unexpected ): `{text}`")
        self.graph.start, self.graph.accept = first, last

    def _peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _take(self, text: str) -> bool:
        found = self._peek(text)
        if found:
            self.at += len(text)
        return found

    def _until(self, end: str, complaint: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise PatternError(f"{complaint}: `{self.text[self.at :]}`")
        found = self.text[self.at : stop]
        self.at = stop + len(end)
        return found

    # Combinations.

    def _choice(self) -> Piece:
        flags = self.fold, self.dot_all, self.lines
        pieces = [self._sequence()]
        while self._take("|"):
            pieces.append(self._sequence())
        self.fold, self.dot_all, self.lines = flags
        return pieces[0] if len(pieces) == 1 else self._either(pieces)

    def _either(self, pieces: list[Piece]) -> Piece:
        first, last = self.graph.node(), self.graph.node()
        for start, end in pieces:
            self.graph.ways[first].append(start)
            self.graph.ways[end].append(last)
        return first, last

    def _sequence(self) -> Piece:
        first = last = self.graph.node()
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            begin = self.at
            for start, end in self._repeated(begin):
                self.graph.ways[last].append(start)
                last = end
        return first, last

    def _repeated(self, begin: int) -> list[Piece]:
        """One item as often as it says. To be repeated n times it is parsed n times: each is a part of its own."""
        piece = self._item()
        if piece is None:
            return []
        end = self.at
        count = self._count()
        if count is None:
            return [piece]
        low, high = count
        rest = self.at
        if self._repeats(rest):
            raise PatternError(f"invalid nested repetition operator: `{self.text[end:rest]}`")

        def again() -> Piece:
            self.at = begin
            copy = self._item()
            assert copy is not None, "it was an item the first time"
            return copy

        copies = [piece, *(again() for _ in range(max(low, high or low, 1) - 1))]
        pieces = copies[:low]
        if high is None:
            pieces.append(self._loop(again() if low else piece))
        else:
            pieces += [self._maybe(one) for one in copies[low:high]]
        self.at = rest
        return pieces

    def _count(self) -> tuple[int, int | None] | None:
        """The repetition that comes next, if one does; a lazy one reads the same names."""
        for sign, count in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                self._take("?")
                return count
        stop = self.text.find("}", self.at)
        if not self._peek("{") or stop < 0:
            return None
        low, comma, high = self.text[self.at + 1 : stop].partition(",")
        if not low.isdecimal() or (high and not high.isdecimal()):
            return None  # a brace like any other character
        least, most = int(low), (int(high) if high else None) if comma else int(low)
        if max(least, most or 0) > REPEATS_MAX or (most is not None and most < least):
            raise PatternError(f"invalid repeat count: `{self.text[self.at : stop + 1]}`")
        self.at = stop + 1
        self._take("?")
        return least, most

    def _loop(self, piece: Piece) -> Piece:
        hub = self.graph.node()
        self.graph.ways[hub].append(piece[0])
        self.graph.ways[piece[1]].append(hub)
        out = self.graph.node()
        self.graph.ways[hub].append(out)
        return hub, out

    def _maybe(self, piece: Piece) -> Piece:
        return self._either([piece, (empty := self.graph.node(), empty)])

    # Items.

    def _item(self) -> Piece | None:
        """One character, place or group; None for flags, which stand for nothing."""
        character = self.text[self.at]
        self.at += 1
        if character == "(":
            return self._group()
        if character == "[":
            return self._reading(*self._class())
        if character == ".":
            return self._reading(frozenset() if self.dot_all else frozenset("\n"), others=True)
        if character == "^":
            return self._placed(LINE_START if self.lines else START)
        if character == "$":
            return self._placed(LINE_END if self.lines else END)
        if character == "\\":
            return self._escape()
        if character in "*+?" or (character == "{" and self._repeats(self.at - 1)):
            raise PatternError(f"missing argument to repetition operator: `{character}`")
        if character == "{" and self._repeats(self.at):
            raise PatternError("invalid nested repetition operator: `{`")  # as RE2/J has it
        return self._reading(frozenset(character))

    def _repeats(self, at: int) -> bool:
        """Whether there is a repetition at this place."""
        before, self.at = self.at, at
        found = self._count() is not None
        self.at = before
        return found

    def _reading(self, characters: frozenset[str], others: bool = False) -> Piece:
        if self.fold:
            characters |= {one.swapcase() for one in characters}
        node, last = self.graph.node((characters, others)), self.graph.node()
        self.graph.ways[node].append(last)
        return node, last

    def _placed(self, place: int) -> Piece:
        node, last = self.graph.node(place=place), self.graph.node()
        self.graph.ways[node].append(last)
        return node, last

    def _group(self) -> Piece | None:
        flags = self.fold, self.dot_all, self.lines
        if self._take("?"):
            if self._take("P<") or (not self._peek("<=") and not self._peek("<!") and self._take("<")):
                self._name()
            elif not self._flags():
                return None  # they hold until the group that they are in ends
        self.depth += 1
        if self.depth > LENGTH_MAX // 10:
            raise PatternError("expression nests too deeply")
        piece = self._choice()
        self.depth -= 1
        if not self._take(")"):
            raise PatternError(f"missing closing ): `{self.text}`")
        self.fold, self.dot_all, self.lines = flags
        return piece

    def _name(self) -> None:
        begin = self.at
        name = self._until(">", "invalid named capture")
        if not name or not set(name) <= WORD:
            raise PatternError(f"invalid named capture: `{name}`")
        if self.names.setdefault(name, begin) != begin:
            raise PatternError(f"duplicate capture group name: `{name}`")

    def _flags(self) -> bool:
        """Set flags. True: a group follows them; False: they end right here."""
        begin, on = self.at, True
        while self.at < len(self.text):
            sign = self.text[self.at]
            self.at += 1
            if sign == "-" and on:
                on = False
            elif sign == "i":
                self.fold = on
            elif sign == "s":
                self.dot_all = on
            elif sign == "m":
                self.lines = on
            elif sign == ":" and self.text[self.at - 2] != "-":
                return True
            elif sign == ")" and self.at - 1 > begin and self.text[self.at - 2] != "-":
                return False
            elif sign != "U":
                break
        raise PatternError(f"invalid or unsupported Perl syntax: `(?{self.text[begin : self.at]}`")

    def _escape(self) -> Piece:
        places = {"A": START, "z": END, "b": EDGE, "B": NO_EDGE}
        if self.at < len(self.text):
            sign = self.text[self.at]
            if sign in places:
                self.at += 1
                return self._placed(places[sign])
            if sign in "dswDSW":
                self.at += 1
                return self._reading(_PERL[sign.lower()], others=sign.isupper())
        return self._reading(frozenset(self._escaped()))

    def _escaped(self) -> str:
        """The character that a backslash and what follows stand for."""
        if self.at >= len(self.text):
            raise PatternError("trailing backslash at end of expression")
        begin = self.at
        sign = self.text[self.at]
        self.at += 1
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign == "x":
            if self._take("{"):
                digits = self._until("}", "invalid escape sequence")
            else:
                digits = self.text[self.at : self.at + 2].ljust(2)
                self.at += 2
            if digits and set(digits) <= set(string.hexdigits) and int(digits, 16) <= 0x10FFFF:
                return chr(int(digits, 16))
        elif sign in _OCTAL and (sign == "0" or self.text[self.at : self.at + 1] in _OCTAL):
            while self.at < begin + 3 and self.text[self.at : self.at + 1] in _OCTAL:
                self.at += 1
            return chr(int(self.text[begin : self.at], 8))
        elif ord(sign) < 128 and not sign.isalnum():
            return sign
        raise PatternError(f"invalid escape sequence: `\\{self.text[begin : self.at]}`")

    # Classes.

    def _class(self) -> tuple[frozenset[str], bool]:
        begin = self.at - 1
        others = self._take("^")
        found: set[str] = set()
        first = True
        while first or not self._peek("]"):
            if self.at >= len(self.text):
                raise PatternError(f"missing closing ]: `{self.text[begin:]}`")
            first = False
            named = self._named_class()
            found |= self._span(begin) if named is None else named
        self.at += 1
        return frozenset(found), others

    def _named_class(self) -> frozenset[str] | None:
        if self._peek("[:") and ":]" in self.text[self.at :]:
            begin = self.at
            self.at += 2
            name = self._until(":]", "invalid character class range")
            known = _POSIX.get(name.removeprefix("^"))
            if known is None:
                raise PatternError(f"invalid character class range: `{self.text[begin : self.at]}`")
            return _ALL - known if name.startswith("^") else known
        if self._peek("\\") and self.text[self.at + 1 : self.at + 2] in {*"dswDSW"}:
            sign = self.text[self.at + 1]
            self.at += 2
            return _ALL - _PERL[sign.lower()] if sign.isupper() else _PERL[sign]
        return None

    def _span(self, begin: int) -> set[str]:
        low = high = self._class_character()
        if self._peek("-") and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            high = self._class_character()
        if low > high:
            raise PatternError(f"invalid character class range: `{self.text[begin : self.at]}`")
        return {chr(code) for code in range(ord(low), min(ord(high), 127) + 1)} | {low, high}

    def _class_character(self) -> str:
        if self._take("\\"):
            return self._escaped()
        character = self.text[self.at]
        self.at += 1
        return character
