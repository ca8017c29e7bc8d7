"""Stream processors, unmodified, with exactly-once processing: Kafka Streams (exactly_once_v2) and Quix Streams."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import judge
import pytest
from exactly_once.apache import Process, program
from exactly_once.counting import COUNTS, LINES, count_words, prepare

if TYPE_CHECKING:
    from exactly_once.conftest import Mortal, MortalKafka

HERE: Final = Path(__file__).parent
QUIX: Final = "3.28.1"


@pytest.mark.xdist_group("apache-programs")
def test_kafka_streams_counts_every_word_once(own_broker: Mortal | MortalKafka, tmp_path: Path) -> None:
    prepare(own_broker.bootstrap)
    arguments = [own_broker.bootstrap, LINES, COUNTS, str(tmp_path / "state"), "exactly_once_v2"]
    counter = program("streams", HERE / "java" / "WordCount.java", arguments, tmp_path / "streams.log")
    count_words(own_broker, counter, survives=True)


@cache
def quix_python() -> Path:
    """An interpreter with Quix Streams: it wants an older confluent-kafka than the rest of the suite."""

    def install(folder: Path) -> None:
        judge.run([sys.executable, "-m", "venv", folder / "venv"], "making a virtual environment")
        pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "-q", f"quixstreams=={QUIX}"]
        judge.run(pip, "installing Quix Streams")

    return judge.cached(f"quixstreams-{QUIX}", install) / "venv" / "bin" / "python"


@pytest.mark.xdist_group("stream-libraries")
def test_quix_streams_counts_every_word_once(own_broker: Mortal | MortalKafka, tmp_path: Path) -> None:
    prepare(own_broker.bootstrap)
    script = HERE / "programs" / "quix.py"
    words = [quix_python(), script, own_broker.bootstrap, LINES, COUNTS, tmp_path / "state"]
    count_words(own_broker, Process(words, tmp_path / "quix.log"), survives=False)
