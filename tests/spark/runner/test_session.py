"""The start of a session: a signal that comes in the middle of it is ours."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from ottla.spark.runner.session import SessionSettings, start_session

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Builder:
    """Makes a context as Spark's does, if there is none."""

    def config(self, conf: object) -> Builder:
        return self

    def getOrCreate(self) -> object:
        SparkContext.getOrCreate()
        return SimpleNamespace(dataSource=SimpleNamespace(register=register))


def register(source: object) -> None:
    registered.append(signal.getsignal(signal.SIGINT))


registered: list[object] = []


def test_ctrl_c_is_ours_as_soon_as_there_is_a_context(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's handler raises KeyboardInterrupt wherever the start is, with pages of stack traces."""
    contexts: list[object] = []

    def get_or_create(conf: object = None) -> object:
        if not contexts:
            contexts.append(conf)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return contexts[0]

    monkeypatch.setattr(SparkContext, "getOrCreate", get_or_create)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        start_session("made", SessionSettings(log=tmp_path / "spark.log"))
        assert registered == [signal.SIG_IGN]
    finally:
        signal.signal(signal.SIGINT, before)
