"""Items of RSS and Atom feeds, from files or addresses, as the articles that the pipeline `articles` reads."""

import html
import json
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ottla.client.failure import Failed
from ottla.spark.pipeline import Run
from ottla.spark.pipeline.generating import Record


def from_feeds(run: Run) -> Iterator[Record]:
    """Items of RSS and Atom feeds, again and again unless the run is to end; the stages know what they have seen."""
    places = [place.strip() for place in run["feeds"].split(",") if place.strip()]
    while True:
        for place in places:
            for item in feed_items(place, fetched(place)):
                yield Record(run["articles"], item["id"], json.dumps(item))
        if run.once:
            return
        run.pause(run.seconds("every"))
        if run.stopping:
            return


def fetched(place: str) -> bytes:
    try:
        if place.startswith(("http://", "https://")):
            with urllib.request.urlopen(place, timeout=30) as answer:
                return bytes(answer.read())
        return Path(place).read_bytes()
    except OSError as error:
        raise Failed(f"cannot read the feed {place} ({error}): give a file or an address of RSS or Atom") from None


def feed_items(place: str, content: bytes) -> Iterator[dict[str, Any]]:
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise Failed(f"{place} is no RSS or Atom feed, since it is no XML: {error}") from None
    channel = root.find("channel")
    named = {bare(element.tag): element.text or "" for element in (root if channel is None else channel)}
    for entry in (element for element in root.iter() if bare(element.tag) in ("item", "entry")):
        parts = {bare(part.tag): part for part in entry}
        link = parts["link"].get("href") or parts["link"].text if "link" in parts else None
        markup = next(
            (whole(parts[name]) for name in ("encoded", "content", "description", "summary") if name in parts), ""
        )
        when = next((parts[name].text for name in ("pubDate", "published", "updated", "date") if name in parts), None)
        name = next((parts[name].text for name in ("guid", "id") if name in parts), None) or link
        if name:
            title = whole(parts["title"]) if "title" in parts else ""
            yield {"id": name.strip(), "feed": named.get("title") or place, "title": title, "html": markup,
                   "published": instant(when)}  # fmt: skip


def bare(tag: str) -> str:
    return tag.rpartition("}")[2]


def whole(element: ElementTree.Element) -> str:
    """The text of an element; Atom may have XHTML in it instead."""
    inner = "".join(ElementTree.tostring(child, encoding="unicode") for child in element)
    return html.escape(element.text or "") + inner if inner else element.text or ""


def instant(when: str | None) -> str | None:
    """A time as ISO 8601, from that of Atom or of RSS; None if it is neither."""
    try:
        return datetime.fromisoformat((when or "").strip()).isoformat()
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(when or "").isoformat()
    except (ValueError, TypeError):
        return None
