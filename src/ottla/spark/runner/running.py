"""From a command line to a run and an exit code. The same for `ottla pipeline run` and a pipeline's own file.

0 done or stopped, 1 failed, 2 the command line is invalid. The first Ctrl-C or SIGTERM stops every query after its
current batch. The second ends the process at once. That loses nothing either: an unfinished batch is repeated at the
next start.
"""

import argparse
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from ottla.client.failure import Failed
from ottla.spark.runner import Pipeline, Run, UsageError
from ottla.spark.runner.arguments import ONCE_COUNT, new_parser, pairs
from ottla.spark.runner.board import Board
from ottla.spark.runner.causes import sentence
from ottla.spark.runner.session import SessionSettings, missing
from ottla.spark.runner.state import DONE, FAILED, RUNNING, STOPPED, RunState, Tenure, default_folder
from ottla.spark.secrets import find_exposed, redact

LIBRARIES: Final = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "deltalake", "confluent_kafka", "rich"}
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
AT_ONCE: Final = 130


def main(pipeline: Pipeline) -> NoReturn:
    sys.exit(run(pipeline, sys.argv[1:], program=Path(sys.argv[0]).name))


def run(pipeline: Pipeline, arguments: list[str], *, program: str, properties: Mapping[str, str] | None = None) -> int:
    """`properties` are client options that are not in the arguments, where everybody could see them."""
    given = new_parser(pipeline, program).parse_args(arguments)
    try:
        import pyspark  # noqa: F401 - a missing one is reported before anything starts

        here = plan_run(pipeline, given, properties or {})
        if given.generate_only:
            return generate_only(here)
        reach(here)
        return run_in_folder(here, given)
    except UsageError as error:
        return complain(str(error), 2)
    except Failed as error:
        return complain(str(error), 1)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LIBRARIES:
            raise
        return complain(str(missing(error)), 1)


def plan_run(pipeline: Pipeline, given: argparse.Namespace, unseen: Mapping[str, str]) -> Run:
    if (given.generate or given.generate_only) and pipeline.generate is None:
        raise UsageError(f"{pipeline.name} generates no input of its own: remove --generate")
    folder = (given.folder or default_folder(os.environ) / pipeline.name).expanduser()
    ends = given.once or given.generate_only
    properties = pairs("--property", given.property)
    for name in find_exposed(properties):
        print(
            f"ottla: everybody on this machine can see {name} (by ps): use {name}.file or {name}.env", file=sys.stderr
        )
    return Run(
        pipeline=pipeline,
        bootstrap=given.bootstrap,
        folder=folder,
        options=pairs("--option", given.option),
        once=given.once,
        tenured=not given.generate_only,
        every_s=given.every,
        checkpoints=given.checkpoints,
        properties={**unseen, **properties},
        rate=given.rate if given.rate is not None or ends else 100.0,
        seed=given.seed,
        count=given.count if given.count is not None or not ends else ONCE_COUNT,
    )


def generate_only(run: Run) -> int:
    """Runs independently of a run in the same folder: a stop file there is for that run, or left by one that ended."""
    assert run.pipeline.generate, "plan_run refuses it"
    with Signals(run.ask_to_stop):
        run.pipeline.generate(run)
    return 0


def reach(run: Run) -> None:
    """Fail before Spark is started if the cluster does not answer."""
    with run.cluster() as cluster:
        cluster.topics([])


def run_in_folder(run: Run, given: argparse.Namespace) -> int:
    tenure = Tenure.take(run.folder)
    try:
        run.session = SessionSettings(
            log=run.folder / "spark.log",
            master=given.master,
            memory=given.driver_memory or "1g",
            ui=given.ui,
            conf=pairs("--conf", given.conf),
            lock=tenure.descriptor,
        )
        print(
            f"{run.name} runs in {run.folder}; Ctrl-C stops it after the batches it is in", file=sys.stderr, flush=True
        )
        begun = RunState(
            run.name, RUNNING, os.getpid(), socket.gethostname(), time.time(), run.bootstrap, redact(run.options)
        )
        board = Board(tenure, begun)
        run.report = board
        with Signals(run.ask_to_stop):
            return run_to_end(run, board, generate=given.generate)
    finally:
        tenure.release()


def run_to_end(run: Run, board: Board, *, generate: bool) -> int:
    """The run itself. Board and state record how it ended."""
    failure = ""
    try:
        carry_out(run, generate=generate)
        board.last_look(run)
    except UsageError as error:
        board.end(run, FAILED, str(error))
        raise
    except Failed as error:
        failure = str(error)
    except spark_errors() as error:
        # A Java process that others tell to stop (spark-submit forwards signals) ends before our queries do.
        failure = "" if run.stopping else sentence(error)
    except BaseException as error:
        board.end(run, FAILED, f"{error} ({type(error).__name__})")
        raise
    finally:
        end(run)
    if failure:
        board.end(run, FAILED, failure)
        return complain(f"{failure} (more in {run.folder / 'spark.log'})", 1)
    board.end(run, DONE if run.once and not run.stopping else STOPPED)
    total = sum(one.rows for one in board.state.progress)
    aside = sum(one.aside for one in board.state.progress)
    said = f", {aside:,} of them put aside" if aside else ""
    print(f"{run.name} {board.state.state}: {total:,} rows read in this run{said}", file=sys.stderr, flush=True)
    return 0


def end(run: Run) -> None:
    """Spark's Java process may already be gone; then there is nothing to stop."""
    with contextlib.suppress(*spark_errors()):
        run.end()


def carry_out(run: Run, *, generate: bool) -> None:
    make = run.pipeline.generate
    if generate and run.once:
        assert make, "plan_run refuses it"
        make(run)
    beside = Generating(run) if generate and not run.once else None
    try:
        _ = run.spark  # first of all: columns cannot be named without a session
        run.pipeline.run(run)
        run.wait()
    finally:
        if beside:
            beside.end()
    if beside and beside.failure:
        raise beside.failure


class Generating(threading.Thread):
    """Generates input during the run. If it fails, the run stops and reports it."""

    def __init__(self, run: Run) -> None:
        super().__init__(name="generate", daemon=True)
        self.failure: Failed | None = None
        self._run = run
        self.start()

    def run(self) -> None:
        assert self._run.pipeline.generate, "plan_run refuses it"
        try:
            self._run.pipeline.generate(self._run)
        except Failed as error:
            self.failure = error
            self._run.ask_to_stop()
        except BaseException as error:
            self.failure = Failed(f"generating input failed: {error} ({type(error).__name__})")
            self._run.ask_to_stop()
            raise

    def end(self) -> None:
        self._run.ask_to_stop()
        self.join(timeout=30)


class Signals:
    """The first signal stops gracefully, the second at once. A context manager: it restores the previous handlers."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self._asked = False

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            os._exit(AT_ONCE)
        self._asked = True
        os.write(2, b"\nstopping after the running batches; once more to stop at once\n")  # print() may be in use
        self._ask()


def spark_errors() -> tuple[type[BaseException], ...]:
    """What Spark raises when something is wrong with a query, its input or its own process."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, ConnectionError, EOFError)


def complain(message: str, code: int) -> int:
    print(f"ottla: {message}", file=sys.stderr)
    return code
