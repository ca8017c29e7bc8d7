"""The registry client: number of requests, passwords, TLS, and an error message for every failure."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import judge
import pyarrow as pa
import pytest
from spark import registries

from ottla.client.failure import Failed, Unreachable
from ottla.spark.values import Registry, avro
from ottla.spark.values import registry as registry_module
from ottla.spark.values.avro_schema import load
from ottla.spark.values.header import header, index_bytes, message_index, schema_ids
from ottla.spark.values.outcome import FAILFAST, Outcome, Report
from ottla.spark.values.registry import Missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBER = {"type": "record", "name": "Number", "fields": [{"name": "x", "type": "long"}]}


def test_each_id_is_fetched_once_in_a_process() -> None:
    with registries.Gate() as gate:
        registry = Registry(gate.url)
        made = registry.register(registries.fresh("numbers-value"), NUMBER)
        column = pa.array([header(made.id) + b"\x02"] * 1000, pa.binary())
        schema = load(NUMBER)
        for _ in range(5):
            rows = avro.decode_values(
                column, schema, schema, pickle.loads(pickle.dumps(registry)), True, Outcome(FAILFAST)
            )
        assert rows.to_pylist() == [{"x": 1}] * 1000
        assert [asked for asked in gate.asked if "/ids/" in asked] == [f"GET /schemas/ids/{made.id}"]


def test_spark_workers_ask_once_each(spark: SparkSession) -> None:
    with registries.Gate() as gate:
        made = Registry(gate.url).register(registries.fresh("numbers-value"), NUMBER)
        rows = [(header(made.id) + b"\x02",)] * 100
        frame = spark.createDataFrame(rows, "value binary").repartition(8).cache()
        for _ in range(3):
            assert frame.select(avro.decode("value", made).alias("n")).filter("n.x = 1").count() == 100
        assert 1 <= len([asked for asked in gate.asked if "/ids/" in asked]) <= 2, "two cores, two workers"
        frame.unpersist()


def test_a_password_and_tls(tmp_path: Path) -> None:
    authority, key = registries.certificate(tmp_path)
    with registries.Gate("me", "se:cret", tls=(authority, key)) as gate:
        subject = registries.fresh("numbers-value")
        registry = Registry(gate.url, user="me", password="se:cret", ca=str(authority))
        made = registry.register(subject, NUMBER)
        inside = gate.url.replace("https://", "https://me:se%3Acret@")
        assert Registry(inside, ca=str(authority)).latest(subject).id == made.id
        assert "se" not in repr(registry).replace("user", "").replace("https", "").replace("registry", "")
        assert "me:se" not in str(Registry(inside))
        with pytest.raises(Failed, match=r"refuses access \(401 Unauthorized\): give a valid user and password"):
            Registry(gate.url, user="me", password="wrong", ca=str(authority)).latest(subject)
        with pytest.raises(Failed, match=r"shows a certificate that is not trusted .*: give its authority as ca"):
            Registry(gate.url).latest(subject)
        with pytest.raises(Failed, match=r"cannot use .*missing.pem as PEM files"):
            Registry(gate.url, ca=str(tmp_path / "missing.pem")).latest(subject)


def test_what_goes_wrong_is_said_in_a_sentence() -> None:
    registry = Registry(registries.url())
    with pytest.raises(Missing, match=r"has nothing at /subjects/nobody/versions/latest .*: check the subject"):
        registry.latest("nobody")
    with pytest.raises(Failed, match="the registry's address 'nonsense' is not valid: it looks like"):
        Registry("nonsense").latest("x")
    (port,) = judge.free_ports(1)
    with pytest.raises(Unreachable, match=r"cannot be reached .*: check the address and that it runs"):
        Registry(f"http://127.0.0.1:{port}").latest("x")
    subject = registries.fresh("numbers-value")
    with pytest.raises(Failed, match="refuses /subjects/"):
        registry.register(subject, "{no schema")


def test_a_value_of_an_unknown_schema_is_bad_but_an_unreachable_registry_fails() -> None:
    schema, value = load(NUMBER), pa.array([header(999_999) + b"\x02"], pa.binary())
    rows = avro.decode_values(value, schema, schema, Registry(registries.url()), True, Outcome(error="why")).to_pylist()
    assert "names schema 999999, but the registry at" in rows[0]["why"]
    (port,) = judge.free_ports(1)
    with pytest.raises(Unreachable):
        avro.decode_values(value, schema, schema, Registry(f"http://127.0.0.1:{port}"), True, Outcome())


def test_headers_are_read_in_place() -> None:
    values = [header(7) + b"x", None, b"", b"\0\0\0", b"\1\0\0\0\7", header(2**32 - 1)]
    column = pa.array([b"skipped", *values], pa.binary())[1:]
    assert schema_ids(column).tolist() == [7, -1, -1, -1, -1, 2**32 - 1]
    assert schema_ids(pa.array([], pa.binary())).tolist() == []
    for index in ((0,), (1,), (3, 0), (200, 1, 0)):
        assert message_index(index_bytes(index) + b"rest") == (index, len(index_bytes(index)))
    assert index_bytes((0,)) == b"\0"
    for torn in (b"", b"\x04\x02", b"\xff\xff\xff\xff\xff\xff", b"\x01", b"\x7e\0"):
        with pytest.raises(ValueError, match="list of message indexes"):
            message_index(torn)


def test_a_file_is_named_when_it_cannot_be_read() -> None:
    with pytest.raises(Failed, match=r"cannot read the schema .*nowhere.avsc"):
        Registry(registries.url()).register("x", Path("nowhere.avsc"))


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.0 {status}", *headers, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (answer(b"[1]"), r"does not answer as a schema registry does: \[1\]"),
        (answer(b"[" * 200_000), r"does not answer as a schema registry does: \[\["),
        (answer(b"{}"), "does not answer as a schema registry does: "),
        (answer(b'{"id": -1, "schema": "x"}'), "does not answer as a schema registry does: "),
        (answer(b'{"id": Infinity, "schema": "x"}'), "does not answer as a schema registry does: "),
        (answer(b'{"schema": "' + b"x" * 3000 + b'"}'), "answers with more than 0 MiB, which is not a schema"),
        (answer(b"<html>"), "cannot be reached .Expecting value"),
        (b"nonsense\r\n\r\n", "cannot be reached .nonsense"),
        (answer(b"[" * 200_000, "404 Not Found"), "has nothing at /subjects/x/versions/latest .Not Found."),
        (answer(b'{"message": "a\\nb"}', "409 Conflict"), "refuses /subjects/x/versions/latest: 409 a b$"),
        (answer(b"", "302 Found", "Location: file:///etc/passwd"), "refuses /subjects/x/versions/latest: 302 "),
    ],
    ids=range(11),
)
def test_an_answer_that_no_registry_gives_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, given: bytes, sentence: str
) -> None:
    monkeypatch.setattr(registry_module, "PAUSE_S", 0.01)
    if b"xxx" in given:
        monkeypatch.setattr(registry_module, "ANSWER_MAX", 2000)
    with registries.Fake(given) as fake, pytest.raises(Failed, match=sentence) as caught:
        Registry(f"http://{fake.netloc}").latest("x")
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


def test_a_registration_without_an_id_is_a_sentence() -> None:
    with (
        registries.Fake(answer(b"{}")) as fake,
        pytest.raises(Failed, match="does not answer as a schema registry does"),
    ):
        Registry(f"http://{fake.netloc}").register("x", NUMBER)


def test_a_redirect_is_not_followed_with_a_password() -> None:
    with registries.Fake(answer(b"{}")) as other:
        to = f"Location: http://you:hush@{other.netloc}/there?token=hush"
        with registries.Fake(answer(b"", "302 Found", to)) as fake:
            registry = Registry(f"http://{fake.netloc}", user="me", password="secret")
            sentence = (
                rf"redirects to http://{other.netloc}/there: if you trust that, give it as the registry's address"
            )
            for ask in (lambda: registry.latest("x"), lambda: registry.register("x", NUMBER)):
                with pytest.raises(Failed, match=sentence):
                    ask()
        assert not other.asked


@pytest.mark.parametrize(
    "url",
    [
        "htp://me:secret@host", "me:secret@host", "http://me:secret@host:port", "http://me:secret@[host",
        "http://me:a/secret@host", "http://me:a://secret@host:port", "http://me:secret@", "http://me:secret@:1",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_said_without_its_password(url: str) -> None:
    with pytest.raises(Failed, match=r"the registry's address '.*' is not valid: it looks like") as caught:
        Registry(url).latest("x")
    assert "secret" not in f"{caught.value} {Registry(url)} {Registry(url)!r}"


def test_an_id_that_none_can_have_is_a_bad_value() -> None:
    schema, value = load(NUMBER), pa.array([header(2**31) + b"\x02", header(2**32 - 1)], pa.binary())
    rows = avro.decode_values(
        value, schema, schema, Registry("http://nobody.invalid"), True, Outcome(error="why")
    ).to_pylist()
    assert ["cannot have a schema" in row["why"] for row in rows] == [True, True]


def test_a_reason_with_half_a_character_is_still_a_reason() -> None:
    report = Report(pa.array([b"x"], pa.binary()), Outcome(error="why"))
    report.bad(0, "names schema 7, but \ud800")
    assert report.finish(pa.array([None], pa.struct([("x", pa.int64())]))).to_pylist()[0]["why"].endswith("but ?")
