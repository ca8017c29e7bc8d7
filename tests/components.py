"""Fetch and build what the suite needs besides Python packages: `python tests/components.py`, before the tests.

The tests would do it at their first use (`judge.cached`). But a compiler that runs beside them takes so much of the
processor that Spark and sessions time out, so a new machine does it first. Once everything is in the cache, this takes
a moment.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import judge
import s3
from compat import families
from exactly_once import apache, transactors
from exactly_once.test_streams import quix_python
from groups import host
from spark import connector, jvm, registries

if TYPE_CHECKING:
    from collections.abc import Callable

Steps = dict[str, "Callable[[], object]"]

FETCHED: Final[Steps] = {
    "Apache Kafka": lambda: judge.classpath(judge.NEWEST),
    "Apache Kafka on ZooKeeper": lambda: judge.classpath("3.9.2"),
    "Spark's Kafka connector": connector.jars,
    "Kafka Streams": lambda: apache.classpath("streams"),
    "Kafka Connect": lambda: apache.classpath("connect"),
    "the schema registry": registries.application,
    "Quix Streams": quix_python,
}
BUILT: Final[Steps] = {
    "the S3 server": s3.program,
    "franz-go's clients": families.go_program,
    "franz-go's transactions": transactors.go_program,
    "franz-go's groups": host.go_program,
    "kafkajs's clients": families.node_program,
    "the archive of Spark's classes": jvm.options,
}
WORTH_SAYING_S: Final = 2.0


def prepare(steps: Steps) -> None:
    for name, step in steps.items():
        began = time.monotonic()
        step()
        if (seconds := time.monotonic() - began) > WORTH_SAYING_S:
            print(f"components: {name}, {seconds:.0f} s", flush=True)


def main() -> None:
    with ThreadPoolExecutor(2) as pool:  # one mostly waits for the network, the other compiles
        for outcome in [pool.submit(prepare, FETCHED), pool.submit(prepare, BUILT)]:
            outcome.result()


if __name__ == "__main__":
    main()
