"""Spark's own Kafka connector, to compare our source with: its jars come from Maven and run in the same JVM.

    jars()                     for `spark.jars`; then `format("kafka")` is Spark's, beside our `format("ottla")`

They are four files, named one by one: the connector declares a token provider of its own version, which does not
resolve, and one version earlier serves as well. Kept where `judge` keeps Apache Kafka, filled once under its lock.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import judge

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = "4.2.0"
COORDINATES: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
ALONE: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)


def fetch(folder: Path) -> None:
    """The four jars without their dependencies: Spark has those."""
    pom = folder / "pom.xml"
    pom.write_text(judge.POM.format("".join(ALONE.format(*coordinate) for coordinate in COORDINATES)))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'libs'}"]
    judge.run(["mvn", "-B", "-q", "-f", pom, *goal], f"fetching Spark's Kafka connector {VERSION} with Maven")


@cache
def jars() -> str:
    """The value of `spark.jars`."""
    libs = judge.cached(f"spark-kafka-{VERSION}", fetch) / "libs"
    found = [libs / f"{artifact}-{version}.jar" for _, artifact, version in COORDINATES]
    missing = [path.name for path in found if not path.exists()]
    if missing:
        raise judge.JudgeError(f"Maven brought no {', '.join(missing)}")
    return ",".join(map(str, found))
