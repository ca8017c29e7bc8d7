"""The registry's client: what is asked how often, passwords, TLS, and a sentence for everything that goes wrong."""

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
from ottla.spark.values.avro_schema import load
from ottla.spark.values.header import header, index_bytes, message_index, schema_ids
from ottla.spark.values.outcome import FAILFAST, Outcome
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
            rows = avro.decoded(column, schema, schema, pickle.loads(pickle.dumps(registry)), True, Outcome(FAILFAST))
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
        with pytest.raises(Failed, match=r"does not let us in \(401 Unauthorized\): give user and password"):
            Registry(gate.url, user="me", password="wrong", ca=str(authority)).latest(subject)
        with pytest.raises(Failed, match=r"shows a certificate that is not trusted .*: give its authority as ca"):
            Registry(gate.url).latest(subject)
        with pytest.raises(Failed, match=r"cannot use .*missing.pem as PEM files"):
            Registry(gate.url, ca=str(tmp_path / "missing.pem")).latest(subject)


def test_what_goes_wrong_is_said_in_a_sentence() -> None:
    registry = Registry(registries.url())
    with pytest.raises(Missing, match=r"has nothing at /subjects/nobody/versions/latest .*: check the subject"):
        registry.latest("nobody")
    with pytest.raises(Failed, match="the registry's address 'nonsense' is none: it looks like"):
        Registry("nonsense").latest("x")
    (port,) = judge.free_ports(1)
    with pytest.raises(Unreachable, match=r"cannot be reached .*: check the address and that it runs"):
        Registry(f"http://127.0.0.1:{port}").latest("x")
    subject = registries.fresh("numbers-value")
    with pytest.raises(Failed, match="refuses /subjects/"):
        registry.register(subject, "{no schema")


def test_a_value_of_an_unknown_schema_is_bad_but_an_unreachable_registry_fails() -> None:
    schema, value = load(NUMBER), pa.array([header(999_999) + b"\x02"], pa.binary())
    rows = avro.decoded(value, schema, schema, Registry(registries.url()), True, Outcome(error="why")).to_pylist()
    assert "names schema 999999, but the registry at" in rows[0]["why"]
    (port,) = judge.free_ports(1)
    with pytest.raises(Unreachable):
        avro.decoded(value, schema, schema, Registry(f"http://127.0.0.1:{port}"), True, Outcome())


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
