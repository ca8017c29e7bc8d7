"""The driver of `machines.py`, as it lies in the shared folder: three pipelines, one after the other, to their end."""

import os
import sys
from pathlib import Path
from typing import Any

from ottla.spark.pipelines.activity import pipeline as activity
from ottla.spark.pipelines.export import pipeline as export
from ottla.spark.pipelines.mirror import pipeline as mirror
from ottla.spark.runner import Pipeline, Run
from ottla.spark.runner import pipeline as pipeline_module
from ottla.spark.runner.session import SessionSettings

pipeline_module.AGAIN_MAX = 50  # type: ignore[misc]  # on a busy machine Python is often too slow for Spark

JAVA = os.environ["JAVA"]


def main(shared: str, address: str, master: str, endpoint: str, here: str, there: str) -> None:
    conf = {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.archives": f"{shared}/site.tar.gz#site",
        "spark.executorEnv.PYTHONPATH": f"{os.environ['PYTHONPATH'].partition(':')[0]}:site",  # what makes it fast
        "spark.network.timeout": "60s",
        "spark.executor.heartbeatInterval": "5s",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": "/tmp",
    }
    session = SessionSettings(log=Path("/tmp/driver/spark.log"), master=master, memory="512m", conf=conf)
    storage = {"storage.endpoint": endpoint, "storage.key": "ottla", "storage.secret.file": f"{shared}/secret"}

    def once(pipeline: Pipeline, **options: str) -> None:
        given = {name.replace("_", "."): value for name, value in options.items()}
        more = storage if pipeline is export.PIPELINE else {}
        run = Run(
            pipeline=pipeline, bootstrap=here, folder=Path("/tmp/driver"), options={**given, **more},
            once=True, session=kept[0] if kept else session, checkpoints=f"file://{shared}/checkpoints",
        )  # fmt: skip
        kept[:] = [run.spark]
        pipeline.run(run)
        run.wait()

    kept: list[Any] = []
    once(export.PIPELINE, topics="orders", path="s3://tables/export", file_bytes="20000", key="string", value="string")
    print("exported", flush=True)
    once(mirror.PIPELINE, to=there, topics="orders")
    print("mirrored", flush=True)
    once(activity.PIPELINE, path=shared, rows="300")
    print("reported", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
