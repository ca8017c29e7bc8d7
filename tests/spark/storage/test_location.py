"""Paths and URLs: which place they name, and which store opens it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.failure import Failed
from ottla.spark.storage.location import Location


@pytest.mark.parametrize("name", ["a b", "a:b", "ü", "a%20b", "100%", "a=b", "a#b", "a?b"])
def test_a_path_is_the_path_that_was_given(tmp_path: Path, name: str) -> None:
    place = Location.parse(str(tmp_path / name))
    assert place.local == tmp_path / name
    assert str(place) == str(tmp_path / name)
    assert (place / "x").local == tmp_path / name / "x"
    bucket = Location.parse(f"s3://bucket/{name}/t")
    assert (bucket.authority, bucket.path, bucket.name) == ("bucket", f"{name}/t", "t")
    assert str(bucket / "x") == f"s3://bucket/{name}/t/x"


@pytest.mark.parametrize("url", ["file:///a%20b/c", "file:/a%20b/c", "file://localhost/a%20b/c"])
def test_a_url_of_a_file_is_decoded(url: str) -> None:
    assert Location.parse(url).local == Path("/a b/c")


def test_relative_paths_and_colons() -> None:
    assert Location.parse("run:1/table").local == Path.cwd() / "run:1/table"
    assert Location.parse(Path("s3:/bucket")).local == Path.cwd() / "s3:/bucket"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("s3://b/t", "s3"),
        ("S3A://b/t", "s3"),
        ("gs://b/t", "gs"),
        ("abfs://c@a.dfs.core.windows.net/t", "abfs"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfs"),
        ("hdfs://host:8020/t", "hdfs"),
        ("hdfs:///t", "hdfs"),
        ("memory://t", "fsspec"),
    ],
)
def test_who_opens_it(url: str, kind: str) -> None:
    assert Location.parse(url).kind == kind


def test_what_nobody_opens_is_refused_by_name() -> None:
    with pytest.raises(Failed, match=r"^gopher:// is not a known kind of storage: give a path, one of s3://, "):
        Location.parse("gopher://host/table")
    with pytest.raises(Failed, match=r"^s3:///t names no bucket: expected s3://bucket/folder$"):
        Location.parse("s3:///t")


def test_secrets_are_not_shown() -> None:
    place = Location.parse("s3://b/t", {"key": "k", "secret": "hush"})
    assert "hush" not in repr(place)
    assert "hush" not in str(place)
    assert place.delta() == ("s3://b/t", {"aws_access_key_id": "k", "aws_secret_access_key": "hush",
                                          "aws_region": "us-east-1", "aws_conditional_put": "etag"})  # fmt: skip
