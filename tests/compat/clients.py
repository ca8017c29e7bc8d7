"""The interface of every Kafka client of the suite: in this process, or a program in another language.

A program (an agent) reads one command per line from its standard input and prints one JSON object per line:

    produce  topic  partition  codec  acks  idempotent  record  record ...      -> {"ok": [offset, ...]}
    consume  topic  partition  offset  count                  -> {"ok": [[offset, timestamp, key, value, headers], ...]}
    offset   topic  partition  timestamp (-1 latest, -2 earliest)               -> {"ok": offset or null}
    create   topic  partitions  name=value,...                                  -> {"ok": null}
    delete   topic                                                              -> {"ok": null}
    grow     topic  total partitions                                            -> {"ok": null}
    partitions  topic                                                           -> {"ok": count}
    configs  topic                                                              -> {"ok": {name: value, ...}}
    alter    topic  name=value,...                                              -> {"ok": null}
    trim     topic  partition  offset                                           -> {"ok": low watermark}

Words are separated by tabs. A record is timestamp|key|value|name:value,name:value; bytes are hexadecimal, null is "-".
An error of the broker is {"refused": Kafka's error code, "message": text}; anything else is {"failed": text}.
"""

from __future__ import annotations

import json
import select
import subprocess
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LATEST: Final = -1
EARLIEST: Final = -2
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S: Final = 60.0


class Record(NamedTuple):
    """A record. A timestamp of None is chosen by the client or the broker."""

    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Stored(NamedTuple):
    offset: int
    record: Record


class Refused(Exception):
    """The broker answered with an error code, which the client reported."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Client(ABC):
    """One client library, called as its users do. `lacks` names the calls and features that it does not have."""

    name: str
    codecs: tuple[str, ...] = CODECS
    lacks: frozenset[str] = frozenset()

    @abstractmethod
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]: ...

    @abstractmethod
    def consume(self, topic: str, offset: int, count: int, *, partition: int = 0) -> list[Stored]: ...

    @abstractmethod
    def offset(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None: ...

    @abstractmethod
    def partitions(self, topic: str) -> int: ...

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        raise NotImplementedError

    def delete(self, topic: str) -> None:
        raise NotImplementedError

    def grow(self, topic: str, total: int) -> None:
        raise NotImplementedError

    def configs(self, topic: str) -> dict[str, str]:
        raise NotImplementedError

    def alter(self, topic: str, configs: Mapping[str, str]) -> None:
        raise NotImplementedError

    def trim(self, topic: str, offset: int, *, partition: int = 0) -> int:
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None: ...


def text(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def data(word: str | None) -> bytes | None:
    return None if word is None or word == "-" else bytes.fromhex(word)


def pairs(configs: Mapping[str, str] | None) -> str:
    return ",".join(f"{name}={value}" for name, value in (configs or {}).items())


class Agent(Client):
    """A client in another language: a program that is started once and driven line by line."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def ask(self, *words: str | int) -> Any:
        self._input.write("\t".join(map(str, words)) + "\n")
        self._input.flush()
        if not select.select([self._output], [], [], TIMEOUT_S)[0]:
            self.close()
            raise AssertionError(f"{self.name} did not answer {words[0]} within {TIMEOUT_S} s")
        line = self._output.readline()
        assert line, f"{self.name} ended with status {self._process.wait()}"
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"], answer["message"])
        assert "ok" in answer, f"{self.name}: {answer['failed']}"
        return answer["ok"]

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        words = []
        for record in records:
            headers = ",".join(f"{name}:{text(value)}" for name, value in record.headers)
            moment = "-" if record.timestamp is None else record.timestamp
            words.append(f"{moment}|{text(record.key)}|{text(record.value)}|{headers}")
        offsets = self.ask("produce", topic, partition, codec, acks, int(idempotent), *words)
        assert isinstance(offsets, list)
        return offsets

    def consume(self, topic: str, offset: int, count: int, *, partition: int = 0) -> list[Stored]:
        return [
            Stored(at, Record(moment, data(key), data(value), tuple((name, data(word)) for name, word in headers)))
            for at, moment, key, value, headers in self.ask("consume", topic, partition, offset, count)
        ]

    def offset(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        found = self.ask("offset", topic, partition, timestamp)
        assert found is None or isinstance(found, int)
        return found

    def partitions(self, topic: str) -> int:
        return int(self.ask("partitions", topic))

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self.ask("create", topic, partitions, pairs(configs))

    def delete(self, topic: str) -> None:
        self.ask("delete", topic)

    def grow(self, topic: str, total: int) -> None:
        self.ask("grow", topic, total)

    def configs(self, topic: str) -> dict[str, str]:
        return dict(self.ask("configs", topic))

    def alter(self, topic: str, configs: Mapping[str, str]) -> None:
        self.ask("alter", topic, pairs(configs))

    def trim(self, topic: str, offset: int, *, partition: int = 0) -> int:
        return int(self.ask("trim", topic, partition, offset))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._input.close()
        self._output.close()
