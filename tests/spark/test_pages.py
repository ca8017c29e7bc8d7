"""What README and docs show of Spark runs as it stands, in a session that the page takes for granted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pages import blocks

from ottla.client.cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from process import Ottla
    from pyspark.sql import SparkSession

ON_SPARK = [block for page in blocks.PAGES for block in blocks.read(page) if block.kind == "spark"]


@pytest.mark.parametrize("block", ON_SPARK, ids=str)
def test_a_block_of_a_page_works(block: blocks.Block, ottla: Ottla, spark: SparkSession, tmp_path: Path) -> None:
    text = block.at(ottla.bootstrap).replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
    with Cluster(ottla.bootstrap) as cluster:
        for topic in set(re.findall(r'"subscribe", "(.+?)"', text)) - set(cluster.topics()):
            cluster.create(topic, 1)
    exec(compile(text, str(block), "exec"), {"spark": spark})
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()
