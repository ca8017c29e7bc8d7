"""Every input of the corpus again: a decoder reads or refuses it, and a running broker answers it or closes the
connection, and keeps running."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from compat.raw import Closed, Raw, batch, create_topic, list_offset, produce
from fuzz.inputs import SIZE_MAX, Input, keep, read, read_all
from fuzz.test_codec_fuzz import check, verified
from wire.samples import every_version

from ottla.embed import BrokerProcess
from ottla.wire.apis import BY_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INPUTS = read_all()
CLASSES = {cls.__name__: cls for cls, _ in every_version()}
TURNED_AWAY = (Closed, TimeoutError, BrokenPipeError, ConnectionResetError)


def of(kind: str) -> list[Input]:
    return [one for one in INPUTS if one.kind == kind]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(options={"log.retention.check.interval.ms": 86_400_000}) as running:
        with Raw(port_of(running)) as raw:
            assert create_topic(raw, "plain") == 0
            assert create_topic(raw, "compacted", 1, {"cleanup.policy": "compact"}) == 0
        yield running


def port_of(broker: BrokerProcess) -> int:
    return int(broker.bootstrap.rpartition(":")[2])


def test_there_is_one_of_every_kind() -> None:
    assert {one.kind for one in INPUTS} == {"frame", "batch", "message"}
    assert all(one.why and len(one.data) <= SIZE_MAX for one in INPUTS)


@pytest.mark.parametrize("one", of("message"), ids=lambda one: one.name)
def test_messages(one: Input) -> None:
    name, version = one.about
    check(CLASSES[name], int(version), one.data)


@pytest.mark.parametrize("one", of("frame"), ids=lambda one: one.name)
def test_frames(broker: BrokerProcess, one: Input) -> None:
    key, version = struct.unpack_from(">hh", one.data) if len(one.data) >= 4 else (-1, -1)
    api = BY_KEY.get(key)
    if api is not None and api.versions[0] <= version <= api.versions[1]:
        name, start = api.request.__name__, 10 + max(0, struct.unpack_from(">h", one.data, 8)[0])
        check(CLASSES[name], version, one.data[start + (version >= api.flexible) :])
    with Raw(port_of(broker), timeout_s=0.2) as raw:
        try:
            raw.send_frame(one.data)
            raw.receive()
        except TURNED_AWAY:
            pass
    serves(broker)


@pytest.mark.parametrize("one", of("batch"), ids=lambda one: one.name)
@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_batches(broker: BrokerProcess, one: Input, topic: str) -> None:
    with Raw(port_of(broker)) as raw:
        before = list_offset(raw, topic, -1)
        assert produce(raw, topic, one.data).error, one.why
        assert list_offset(raw, topic, -1) == before, "something was stored"
    serves(broker)


def serves(broker: BrokerProcess) -> None:
    with Raw(port_of(broker)) as raw:
        assert produce(raw, "plain", batch([b"fine"])).error == 0
    assert "Traceback" not in broker.log


def test_what_a_fuzzer_finds_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(cls: type, version: int, data: bytes) -> bool:
        raise AssertionError("two messages\nout of one")

    monkeypatch.setattr("fuzz.test_codec_fuzz.check", broken)
    with pytest.raises(AssertionError):
        verified(CLASSES["MetadataRequest"], 4, b"\x01\x02", tmp_path)
    (path,) = tmp_path.glob("*.hex")
    assert read(path)[1:] == ("two messages out of one", "message", ("MetadataRequest", "4"), b"\x01\x02")
    assert keep("large", "frame", bytes(SIZE_MAX + 1), folder=tmp_path) is None
