"""Untrusted HTML as plain text. Any input becomes text, in linear time."""

import html
import re
import unicodedata
from collections.abc import Iterator
from typing import Final

HIDDEN: Final = {"script", "style", "noscript", "template"}
INLINE: Final = {"a", "abbr", "b", "code", "em", "font", "i", "mark", "q", "s", "small", "span", "strong", "sub", "sup",
                 "u"}  # fmt: skip
# Markup as browsers parse it. What is not closed extends to the end, so that every character is read once: the parser
# of Python's library takes hours for a megabyte of `<a `, and raises on `<![`.
MARKUP: Final = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))
      | <(?:[!?]|/(?![a-z]))[^>]*+>?
      | <(?P<end>/?)(?P<name>[a-z][^\s/>]*+)(?:[^>=]++|=\s*+(?:"[^"]*+"?|'[^']*+'?|[^\s>"'][^\s>]*+)?)*+>?""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE | re.ASCII,
)
NO_MARKUP_IN: Final = {
    name: re.compile(rf"</(?:\w++:)?{name}(?=[\s/>])", re.IGNORECASE | re.ASCII) for name in ("script", "style")
}
NO_CHARACTER: Final = re.compile(r"&#[0-9]{100,};?")  # Python refuses to parse numbers of thousands of digits
PIECE: Final = re.compile(r".{1,1000}(?!\S)|.{1,1000}", re.DOTALL)


def plain(markup: str) -> str:
    """What a reader sees of HTML, normalised: NFKC, one space between words."""
    text = "".join(visible(markup))
    # In pieces, at white space if there is any: sorting combining marks takes quadratic time.
    return " ".join("".join(unicodedata.normalize("NFKC", piece) for piece in PIECE.findall(text)).split())


def visible(markup: str) -> Iterator[str]:
    """The text only. Tags that begin a new line or cell become a space."""
    at = hidden = 0
    while found := MARKUP.search(markup, at):
        if not hidden:
            yield text_of(markup[at : found.start()])
        at = found.end()
        if found["name"] is None:
            continue
        name = found["name"].lower().rpartition(":")[2]  # XHTML may have a prefix
        if name in HIDDEN and found["end"]:
            hidden -= hidden > 0
        elif name in HIDDEN and not found[0].endswith("/>"):
            hidden += 1
            if name in NO_MARKUP_IN:
                closing = NO_MARKUP_IN[name].search(markup, at)
                at = closing.start() if closing else len(markup)
        if name not in INLINE:
            yield " "
    if not hidden:
        yield text_of(markup[at:])


def text_of(markup: str) -> str:
    return html.unescape(NO_CHARACTER.sub("\ufffd", markup))
