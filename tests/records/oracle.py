"""Apache Kafka's record classes in a JVM that answers line by line (java/Records.java); and what tests share."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import judge

from ottla.config import TopicConfig, load, topic_config
from ottla.records import batch, legacy
from ottla.records.batch import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")  # by number
FORMATS = ("0.9.0", "0.10.2", "3.0")  # message.format.version by magic
BROKER = load({})


class Kafka:
    def __init__(self) -> None:
        version = judge.ZOOKEEPER  # the last release that converts down and whose validator knows magic 0 and 1
        source = Path(__file__).parent / "java" / "Records.java"
        words = judge.command(source, path=judge.classpath(version), options=judge.logging_options(version))
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words: object) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n").split(" ")

    def read(self, data: bytes) -> list[Record]:
        return [parse_record(text) for text in self._ok("read", data.hex()).split(",") if text]

    def build(self, records: Sequence[Record], magic: int, codec: int, append_time: int | None = None) -> bytes:
        time = -1 if append_time is None else append_time
        return bytes.fromhex(self._ok("build", magic, CODECS[codec], time, ",".join(map(format_record, records))))

    def down(self, data: bytes, magic: int, first_offset: int = 0) -> bytes:
        return bytes.fromhex(self._ok("down", magic, first_offset, data.hex()))

    def _ok(self, *words: object) -> str:
        kind, *rest = self.ask(*words)
        assert kind == "ok", " ".join(rest)
        return rest[0]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def build(records: Sequence[Record], magic: int, codec: int = 0, append_time: int | None = None) -> bytes:
    """Our own builder of any magic."""
    if magic == batch.MAGIC:
        return batch.build(records, codec=codec, append_time=append_time)
    return legacy.build(records, magic=magic, codec=codec, append_time=append_time)


def read(data: bytes) -> list[Record]:
    return [record for entry in batch.entries(data) for record in batch.iterate(data, entry.position)]


def topic(**overrides: object) -> TopicConfig:
    return topic_config(BROKER, {name.replace("_", "."): str(value) for name, value in overrides.items()})


def format_record(record: Record) -> str:
    headers = ";".join(f"{key.encode().hex()}={_hex(value)}" for key, value in record.headers)
    return f"{record.offset}:{record.timestamp}:{_hex(record.key)}:{_hex(record.value)}:{headers}"


def parse_record(text: str) -> Record:
    offset, timestamp, key, value, headers = text.split(":")
    pairs = [pair.split("=") for pair in headers.split(";") if pair]
    names = tuple((bytes.fromhex(name).decode(), _bytes(content)) for name, content in pairs)
    return Record(int(offset), int(timestamp), _bytes(key), _bytes(value), names)


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)
