"""A cluster as a value: what is kept between tasks of a worker, and properties from a file."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from ottla.client.failure import Failed
from ottla.client.security import PLAIN
from ottla.spark.pipelines.mirror.endpoint import Endpoint, properties

if TYPE_CHECKING:
    from pathlib import Path

    from process import Ottla


def test_a_connection_is_kept_until_something_goes_wrong(ottla: Ottla) -> None:
    endpoint = pickle.loads(pickle.dumps(Endpoint(ottla.bootstrap)))
    with endpoint.reuse() as first:
        assert first.id
    with Endpoint(ottla.bootstrap).reuse() as second:
        assert second is first
    with pytest.raises(ZeroDivisionError), endpoint.reuse():
        raise ZeroDivisionError
    with endpoint.reuse() as third:
        assert third is not first
        assert third.id == first.id


def test_properties_of_kafkas_clients(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# a remark\nsecurity.protocol=PLAINTEXT\n\nclient.id = somebody\n")
    assert properties(str(file)) == PLAIN
    file.write_text("security.protocol PLAINTEXT\n")
    with pytest.raises(Failed, match="line 1: expected name=value"):
        properties(str(file))
    with pytest.raises(Failed, match="cannot be read"):
        properties(str(tmp_path / "none"))
