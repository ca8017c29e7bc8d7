"""The Spark examples of README and docs run unchanged, in a session that the page assumes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pages import blocks

if TYPE_CHECKING:
    from pathlib import Path

    from process import Ottla
    from pyspark.sql import SparkSession

ON_SPARK = [block for page in blocks.PAGES for block in blocks.read(page) if block.kind == "spark"]


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("block", ON_SPARK, ids=str)
def test_a_block_of_a_page_works(block: blocks.Block, ottla: Ottla, spark: SparkSession, tmp_path: Path) -> None:
    text = block.at(ottla.bootstrap).replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
    admin = AdminClient({"bootstrap.servers": ottla.bootstrap})
    missing = set(re.findall(r'"subscribe", "(.+?)"', text)) - set(admin.list_topics(timeout=60).topics)
    for made in admin.create_topics([NewTopic(topic) for topic in missing]).values() if missing else ():
        made.result()
    exec(compile(text, str(block), "exec"), {"spark": spark})
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()
