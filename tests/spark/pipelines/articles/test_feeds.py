"""Feeds in all the forms found on the web: read, or refused with a message, without ending the run."""

from __future__ import annotations

import http.server
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.failure import Failed
from ottla.spark.pipelines.articles import feeds
from ottla.spark.pipelines.articles.feeds import feed_items, fetch, from_feeds, instant
from ottla.spark.pipelines.articles.markup import plain
from ottla.spark.pipelines.articles.pipeline import PIPELINE
from ottla.spark.runner import Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RSS = """<?xml version="1.0"?><rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel>
<title>The Paper</title><item><guid>one</guid><title>Tea &amp; milk</title>
<pubDate>Sat, 31 Jan 2026 12:00:00 GMT</pubDate>
<description>short</description><content:encoded><![CDATA[<p>Long <b>story</b></p>]]></content:encoded></item>
<item><link>http://example.org/two</link><title>Two</title><description>plain</description></item>
<item><title>nameless</title></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Notes</title><entry><id>tag:1</id><title>Three</title>
<updated>2026-01-31T12:00:00Z</updated><link href="http://example.org/3"/>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">Some <em>words</em></div></content></entry></feed>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"
xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><dc:title>no</dc:title><title>Old</title></channel><item>
<dc:title>no</dc:title><title>Four</title><link>http://example.org/4</link><dc:date>2026-01-31T12:00:00Z</dc:date>
<description>text</description><dc:description>no</dc:description></item></rdf:RDF>"""
SPACES = 'xmlns:media="http://search.yahoo.com/mrss/" xmlns:atom="http://www.w3.org/2005/Atom" xmlns:other="other"'


def items_of(place: Path, **options: str) -> list[dict[str, Any]]:
    run = Run(pipeline=PIPELINE, bootstrap="nowhere:1", folder=place, options=options, once=True)
    return [json.loads(record.value or "") for record in from_feeds(run)]


def test_feeds_are_read_from_files(tmp_path: Path) -> None:
    rss, atom, rdf = tmp_path / "paper.rss", tmp_path / "notes.atom", tmp_path / "old.rdf"
    for path, text in ((rss, RSS), (atom, ATOM), (rdf, RDF)):
        path.write_text(text)
    items = items_of(tmp_path, feeds=f"{rss}, {atom},{rdf}")
    assert [item["id"] for item in items] == ["one", "http://example.org/two", "tag:1", "http://example.org/4"]
    assert items[0] == {
        "id": "one",
        "feed": "The Paper",
        "title": "Tea & milk",
        "html": "<p>Long <b>story</b></p>",
        "published": "2026-01-31T12:00:00+00:00",
    }
    assert items[1]["published"] is None
    assert plain(items[2]["html"]) == "Some words"
    assert items[2]["feed"] == "Notes"
    assert items[3] == {
        "id": "http://example.org/4",
        "feed": "Old",
        "title": "Four",
        "html": "text",
        "published": "2026-01-31T12:00:00+00:00",
    }


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            "<title>own</title><description>text</description><media:content url='x'/><media:title>no</media:title>",
            {"title": "own", "html": "text"},
        ),
        ("<media:title>no</media:title><title>own</title>", {"title": "own"}),
        ("<title> </title><media:title>theirs</media:title>", {"title": "theirs"}),
        ("<content/><description>\n</description><atom:summary>short</atom:summary>", {"html": "short"}),
        ("<media:description>theirs</media:description><summary/>", {"html": "theirs"}),
        ("<title>first</title><title>second</title>", {"title": "first"}),
        ("<other:encoded>no</other:encoded><description>text</description>", {"html": "text"}),
        ("<pubDate>soon</pubDate><updated>2026-01-31</updated>", {"published": "2026-01-31T00:00:00"}),
        ("<guid/><other:id>no</other:id><link> address </link>", {"id": "address"}),
        ("<atom:link rel='self' href='no'/><link>address</link><media:link href='no'/>", {"id": "address"}),
        ("<description><item><guid>inner</guid></item></description>", {}),
    ],
)
def test_what_a_feed_says_itself_comes_before_what_others_add(parts: str, expected: dict[str, str]) -> None:
    name = "" if "id" in expected else "<guid>name</guid>"
    text = f"<rss {SPACES}><channel><title>Feed</title><media:title>no</media:title><item>{name}{parts}</item>"
    (item,) = feed_items("place", f"{text}<other:item><guid>no</guid></other:item></channel></rss>".encode())
    assert item["feed"] == "Feed"
    assert {part: item[part] for part in expected} == expected


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"<rss>",
        b"\xff\xfe",
        b"<?xml version='1.0' encoding='no-such'?><rss/>",
        b"<?xml version='1.0' encoding='shift_jis'?><rss/>",
        b"<?xml version='1.0' encoding='hex'?><rss/>",
        b"<rss>&nbsp;</rss>",
        b"<rss>\0</rss>",
    ],
)
def test_what_is_no_xml_is_refused(content: bytes) -> None:
    with pytest.raises(Failed, match="place is not an RSS or Atom feed, since it is not XML"):
        list(feed_items("place", content))


def test_entities_are_refused() -> None:
    laughs = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    text = f'<!DOCTYPE rss [<!ENTITY l0 "ha">{laughs}]><rss><channel><title>&l9;</title></channel></rss>'
    for content in (
        text.encode(),
        text.encode("utf-16"),
        b'<!DOCTYPE rss [<!ENTITY x SYSTEM "file:x">]><rss>&x;</rss>',
    ):
        with pytest.raises(Failed, match="place declares entities"):
            list(feed_items("place", content))
    plain_type = b'<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" "x.dtd"><rss/>'
    assert list(feed_items("place", plain_type)) == []


def test_elements_within_elements_have_their_text() -> None:
    deep = "<div>" * 20_000 + "a &lt; b" + "</div>" * 20_000
    (item,) = feed_items(
        "place", f"<rss><channel><item><guid>1</guid><content>{deep}</content></item></channel></rss>".encode()
    )
    assert plain(item["html"]) == "a < b"


@pytest.mark.parametrize(
    "when",
    [None, "", "soon", "9" * 30, "Sat, 31 Jan " + "9" * 30 + " 12:00:00 GMT", "Sat, 31 Jan 2026 99:00:00 GMT",
     "Sat, 31 Jan 2026 12:00:00 +" + "9" * 30, "1 Jan " + "9" * 5000, "Sat, 31 Jan 2026 12:00:00 +9999", "\0", ", : ,"],
)  # fmt: skip
def test_no_time_is_none(when: str | None) -> None:
    assert instant(when) is None


def test_an_item_too_large_for_a_topic_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    items = "".join(f"<item><guid>{name}</guid><description>{text}</description></item>"
                    for name, text in (("large", "x" * 1_000_000), ("small", "x"), ("i" * 1_000_000, "")))  # fmt: skip
    (tmp_path / "feed.rss").write_text(f"<rss><channel>{items}</channel></rss>")
    assert [item["id"] for item in items_of(tmp_path, feeds=str(tmp_path / "feed.rss"))] == ["small"]
    assert caplog.text.count("is left out: it has more than 900000 bytes") == 2


class Server(http.server.ThreadingHTTPServer):
    """Serves a feed in many ways, most of them wrong, and counts the requests of each."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []

    def handle_error(self, request: object, client: object) -> None:
        """Clients that disconnect during an answer are part of the test."""

    def at(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        kind = self.path.strip("/")
        if kind == "feed":
            self.answer(200, RSS.encode())
        elif kind == "busy":
            self.answer(503, b"later")
        elif kind == "broken":
            self.answer(200, RSS.encode()[:100])
        elif kind == "short":
            self.answer(200, RSS.encode()[:100], **{"Content-Length": str(len(RSS))})
        elif kind == "chunks":
            self.answer(200, b"fff\r\nnot so much", **{"Transfer-Encoding": "chunked"})
        elif kind == "silent":
            time.sleep(1.0)
        elif kind == "garbage":
            self.wfile.write(b"no HTTP\r\n\r\n")
        elif kind == "drip":
            self.answer(200, b"")
            for _ in range(20):
                self.wfile.write(b" ")
                time.sleep(0.05)
        elif kind == "endless":
            self.endless(200)
        else:  # /endless-redirect?... and /redirect?address
            to = kind.partition("?")[2]
            self.endless(302, Location=to) if kind.startswith("endless") else self.answer(302, b"", Location=to)

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def endless(self, status: int, **headers: str) -> None:
        self.answer(status, b"", **headers)
        try:
            while True:
                self.wfile.write(b" " * 65536)
        except OSError:
            pass

    def log_message(self, format: str, *values: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join(10)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("busy", r"HTTP Error 503"),
        ("short", r"IncompleteRead\(100 bytes read, \d+ more expected\)"),
        ("chunks", r"IncompleteRead"),
        ("silent", r"timed out"),
        ("garbage", r"no HTTP"),
        ("drip", r"it takes longer than 0 s"),
        ("redirect?ftp://127.0.0.1:1/feed", r"it redirects to ftp://127.0.0.1:1/feed, which is neither http nor https"),
        ("redirect?file:///etc/hostname", r"file:///etc/hostname"),
        ("redirect?data:text/xml,x", r"data:text/xml,x"),
        ("redirect?http://[", r"Invalid IPv6 URL"),
    ],
)
def test_a_feed_that_cannot_be_fetched_is_a_sentence(
    server: Server, path: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "SILENCE_S", 0.5)
    monkeypatch.setattr(feeds, "FETCH_S", 0.3)
    with pytest.raises(
        Failed, match=rf"cannot read the feed http.* \(.*{reason}.*\): give a file or an address of RSS"
    ):
        fetch(server.at(path))


@pytest.mark.parametrize(
    "place", ["http://", "http://[", "http://127.0.0.1:port/", "http://127.0.0.1:1/ä b", "a\0b", ""]
)
def test_an_address_that_cannot_be_one_is_a_sentence(place: str) -> None:
    with pytest.raises(Failed, match="cannot read the feed"):
        fetch(place)


def test_redirections_are_followed_on_the_web(server: Server) -> None:
    assert fetch(server.at(f"redirect?{server.at('feed')}")) == RSS.encode()
    assert fetch(server.at("redirect?/feed").replace("http", "HTTP")) == RSS.encode()
    assert fetch(server.at("endless-redirect?/feed")) == RSS.encode()


def test_a_feed_without_end_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Failed, match="has more than 10 MiB: give one that is smaller"):
        fetch(server.at("endless"))
    large = tmp_path / "large.rss"
    large.write_bytes(b" " * (feeds.FEED_MAX + 1))
    with pytest.raises(Failed, match="has more than 10 MiB: give one that is smaller"):
        fetch(str(large))


@pytest.mark.parametrize("place", ["ftp://example.org/feed", "file:///etc/hostname", "FILE:///x", "gopher://x"])
def test_only_files_and_the_web_are_read(tmp_path: Path, place: str) -> None:
    with pytest.raises(Failed, match="is neither http nor https: give such an address, or the path of a file"):
        items_of(tmp_path, feeds=place)


def test_a_feed_that_fails_does_not_stop_the_others(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With --once the run ends with the reason."""
    monkeypatch.setattr(feeds, "SILENCE_S", 0.5)
    wrong = ("busy", "broken", "short", "chunks", "silent", "garbage", "redirect?ftp://127.0.0.1:1/")
    places = [*map(server.at, wrong), str(tmp_path / "missing.rss"), server.at("feed")]
    run = Run(pipeline=PIPELINE, bootstrap="nowhere:1", folder=tmp_path, options={"feeds": ",".join(places)})
    pauses = iter([lambda: None, run.ask_to_stop])
    monkeypatch.setattr(run, "pause", lambda seconds: next(pauses)())
    server.asked.clear()
    found = [record.key for record in from_feeds(run)]
    assert found == ["one", "http://example.org/two"] * 2, "two rounds"
    assert [server.asked.count(f"/{path}") for path in wrong] == [2] * len(wrong), "each is tried again"
    assert caplog.text.count("; the other feeds continue, and this one is tried again") == 2 * (len(places) - 1)
    assert "missing.rss" in caplog.text
    for place in places[:-1]:
        with pytest.raises(Failed, match=r"cannot read the feed|is not an RSS or Atom feed"):
            items_of(tmp_path, feeds=place)
