"""Items of RSS and Atom feeds, from files or addresses, as the articles that the pipeline `articles` reads.

Feeds are untrusted: they are fetched over http and https only, also after redirects, are limited in size and time, and
must not declare entities. A feed that cannot be read is logged and tried again in the next round.
"""

import html
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree  # nosec B405 # see parse_feed
from xml.parsers import expat

from ottla.client.failure import Failed
from ottla.spark.runner import Run
from ottla.spark.runner.generating import Record

log = logging.getLogger("ottla.spark")

WEB: Final = ("http://", "https://")
FEED_MAX: Final = 10 << 20  # bytes
ITEM_MAX: Final = 900_000  # bytes of an item's record: producers refuse a million
SILENCE_S: Final = 30.0  # how long a server may send nothing ...
FETCH_S: Final = 120.0  # ... and how long a fetch may take in all
ATOM: Final = "{http://www.w3.org/2005/Atom"
CONTENT: Final = "{http://purl.org/rss/1.0/modules/content/"  # content:encoded, the full text beside a short one


def from_feeds(run: Run) -> Iterator[Record]:
    """Items of RSS and Atom feeds, repeatedly unless the run ends by itself. The stages drop what they have seen."""
    places = [place.strip() for place in run["feeds"].split(",") if place.strip()]
    for place in places:
        if "://" in place and not on_the_web(place):
            raise Failed(f"the feed {place} is neither http nor https: give such an address, or the path of a file")
    while not run.stopping:
        for place in places:
            for item in items(run, place):
                record = Record(run["articles"], item["id"], json.dumps(item))
                if len(item["id"].encode()) + len(record.value or "") <= ITEM_MAX:
                    yield record
                else:
                    log.warning("an item of the feed %s is left out: it has more than %d bytes", place, ITEM_MAX)
        if run.once:
            return
        run.pause(run.seconds("every"))


def items(run: Run, place: str) -> list[dict[str, Any]]:
    """The current items of one feed. If it fails, a warning is logged, and it is tried again the next time."""
    try:
        return list(feed_items(place, fetch(place)))
    except Failed as error:
        if run.once:
            raise
        log.warning("%s; the other feeds continue, and this one is tried again", error)
        return []


# Fetching.


def fetch(place: str) -> bytes:
    try:
        with open_feed(place) as source:
            return read_bounded(place, source)
    except (OSError, HTTPException, ValueError) as error:  # ValueError: an invalid address or path
        reason = " ".join(str(error).split())[:200] or type(error).__name__  # servers influence this text
        raise Failed(f"cannot read the feed {place} ({reason}): give a file or an address of RSS or Atom") from None


def on_the_web(place: str) -> bool:
    return place.lower().startswith(WEB)


def open_feed(place: str) -> Any:
    if on_the_web(place):
        return urllib.request.build_opener(Redirects).open(place, timeout=SILENCE_S)
    return Path(place).open("rb")


class Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects to http and https only. Python's own handler would follow one to ftp, and read its whole body."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        fp.close()
        if not on_the_web(newurl):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is neither http nor https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def read_bounded(place: str, source: Any) -> bytes:
    end = time.monotonic() + FETCH_S
    content = bytearray()
    while part := source.read1(1 << 16):
        content += part
        if len(content) > FEED_MAX:
            raise Failed(f"the feed {place} has more than {FEED_MAX >> 20} MiB: give one that is smaller")
        if time.monotonic() > end:
            raise TimeoutError(f"it takes longer than {FETCH_S:.0f} s")
    if left := getattr(source, "length", None):  # the response ended before its Content-Length
        raise IncompleteRead(bytes(content), left)
    return bytes(content)


# Reading.


def feed_items(place: str, content: bytes) -> Iterator[dict[str, Any]]:
    root = parse_feed(place, content)
    channel = next((element for element in root if bare(element.tag) == "channel"), root)
    own = {"", ATOM, CONTENT, space(root.tag), space(channel.tag)}
    feed = first("".join(part.itertext()) for part in parts(channel, own, "title")) or place
    for entry in (*root, *(channel if channel is not root else ())):  # RSS 2 has items in the channel, others beside it
        if bare(entry.tag) not in ("item", "entry") or space(entry.tag) not in own:
            continue
        links = sorted(parts(entry, own, "link"), key=lambda link: link.get("rel", "alternate") != "alternate")
        named = [part.text for part in parts(entry, own, "guid", "id") if space(part.tag) in own]
        name = first([*named, *(link.get("href") or link.text for link in links)])
        if name:
            yield {
                "id": name,
                "feed": feed,
                "title": first(map(whole, parts(entry, own, "title"))) or "",
                "html": first(map(whole, parts(entry, own, "encoded", "content", "description", "summary"))) or "",
                "published": first(
                    instant(part.text) for part in parts(entry, own, "pubDate", "published", "updated", "date")
                ),
            }


def parse_feed(place: str, content: bytes) -> ElementTree.Element:
    def refuse(*declared: object) -> None:
        raise Failed(f"{place} declares entities, which may grow without end: give a feed that has none")

    checked = expat.ParserCreate()
    checked.EntityDeclHandler = refuse  # the tree's own parser has no such handler
    try:
        checked.Parse(content, True)
        return ElementTree.fromstring(content)  # nosec B314 # entities were refused above
    except (ElementTree.ParseError, expat.ExpatError, LookupError, ValueError) as error:  # LookupError: the encoding
        raise Failed(f"{place} is not an RSS or Atom feed, since it is not XML: {error}") from None


def parts(element: ElementTree.Element, own: Collection[str], *names: str) -> list[ElementTree.Element]:
    """Elements with these names, best first: the feed's own before those of media, podcasts and others, then by
    name."""
    found = [part for part in element if bare(part.tag) in names]
    return sorted(found, key=lambda part: (space(part.tag) not in own, names.index(bare(part.tag))))


def first(texts: Iterable[str | None]) -> str | None:
    """The first text that is not empty."""
    return next((text.strip() for text in texts if text and text.strip()), None)


def bare(tag: str) -> str:
    return tag.rpartition("}")[2]


def space(tag: str) -> str:
    return tag.rpartition("}")[0]


def whole(element: ElementTree.Element) -> str:
    """The text of an element; in Atom it may be XHTML."""
    try:
        inner = "".join(ElementTree.tostring(child, encoding="unicode") for child in element)
    except RecursionError:  # elements nested thousands deep: use their text
        return html.escape("".join(element.itertext()))
    return html.escape(element.text or "") + inner if inner else element.text or ""


def instant(when: str | None) -> str | None:
    """A time as ISO 8601, from that of Atom or of RSS; None if it is neither."""
    try:
        return datetime.fromisoformat((when or "").strip()).isoformat()
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(when or "").isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
