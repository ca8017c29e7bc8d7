"""The command line of a pipeline: the flags of every run, and `name=value` pairs."""

import argparse
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from ottla.spark.runner import Option, Pipeline, UsageError
from ottla.spark.runner.state import default_folder

BOOTSTRAP: Final = "localhost:9092"
ONCE_COUNT: Final = 10_000  # generated records for a run that ends by itself

REPEATABLE: Final[dict[str, Any]] = {"action": "append", "default": []}

Add = Callable[..., Any]


def new_parser(pipeline: Pipeline, program: str) -> argparse.ArgumentParser:
    options = "\n".join(describe_option(option) for option in pipeline.options)
    parser = argparse.ArgumentParser(
        prog=program,
        description=pipeline.summary,
        epilog="options of this pipeline:\n" + (options or "  none"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_input(parser.add_argument)
    add_state(parser.add_argument, pipeline.name)
    add_spark(parser.add_argument)
    add_made_up_input(parser.add_argument)
    return parser


def describe_option(option: Option) -> str:
    choices = f" ({', '.join(option.choices)})" if option.choices else ""
    return f"  {option.name}={option.default or ''}\n      {option.summary}{choices}"


def add_input(add: Add) -> None:
    add("-o", "--option", metavar="NAME=VALUE", help="an option of the pipeline; repeatable", **REPEATABLE)
    add(
        "-b",
        "--bootstrap",
        default=os.environ.get("OTTLA_BOOTSTRAP", BOOTSTRAP),
        help="the cluster: host:port,... ($OTTLA_BOOTSTRAP)",
    )
    add(
        "-X",
        "--property",
        metavar="NAME=VALUE",
        help="a Kafka client option, such as security.protocol=SSL; repeatable; secrets from a file or a variable: "
        "sasl.jaas.config.file=PATH, sasl.password.env=NAME",
        **REPEATABLE,
    )


def add_state(add: Add, name: str) -> None:
    folder = default_folder(os.environ) / name
    add("--folder", type=Path, help=f"its state, checkpoints and tables (default: {folder})")
    add("--checkpoints", metavar="URL", help="put checkpoints here, such as s3a://... (default: in the folder)")
    add("--once", action="store_true", help="process the records that are there, then end")
    add(
        "--every",
        type=from_zero,
        default=1.0,
        metavar="SECONDS",
        help="seconds from one micro-batch to the next; 0: no pause (default: 1)",
    )


def add_spark(add: Add) -> None:
    add(
        "--master",
        help="where Spark runs: local[*], spark://host:7077, ... (default: as given to spark-submit, else local[*])",
    )
    add("--conf", metavar="NAME=VALUE", help="a setting of Spark; repeatable", **REPEATABLE)
    add("--driver-memory", metavar="SIZE", help="memory of Spark's Java process, such as 2g (default: 1g)")
    add("--ui", action="store_true", help="serve Spark's own web pages")


def add_made_up_input(add: Add) -> None:
    add("--generate", action="store_true", help="generate input and produce it during the run; with --once before it")
    add("--generate-only", action="store_true", help="generate input and end")
    add(
        "--rate",
        type=above_zero,
        metavar="N",
        help="generated records per second (default: 100 during a run, else no limit)",
    )
    add(
        "--count",
        type=from_one,
        metavar="N",
        help=f"generated records in all (default: until stopped; {ONCE_COUNT:,} for a run that ends)",
    )
    add("--seed", type=int, default=0, metavar="N", help="the same seed generates the same input (default: 0)")


def from_zero(text: str) -> float:
    if not 0 <= (found := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return found


def from_one(text: str) -> int:
    if (found := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return found


def above_zero(text: str) -> float:
    if not 0 < (found := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return found


def pairs(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """The values of a repeatable flag of the form name=value."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{flag} {text}: expected name=value")
        found[name.strip()] = value
    return found
