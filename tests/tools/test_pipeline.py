"""`ottla pipeline` where no Spark is needed: names, files, folders, and what is said without the extra."""

import ast
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.runner import state
from ottla.spark.runner.state import QueryProgress, RunState, Tenure

Run = Callable[..., Any]

WITHOUT = """
import sys
sys.modules["pyspark"] = None
sys.argv = ["ottla", "pipeline", *{arguments!r}]
from ottla.__main__ import main
main()
"""


def test_the_pipelines_that_come_with_ottla_are_listed(run: Run) -> None:
    shown = run("pipeline", "list")
    assert "activity" in shown.out
    (found,) = [one for one in run("pipeline", "list", "--json").document if one["name"] == "activity"]
    (part,) = [option for option in found["options"] if option["name"] == "part"]
    assert part == {"name": "part", "default": "both", "summary": "What to do.", "choices": ["live", "report", "both"]}


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["activty"], 2, "there is no pipeline activty: did you mean activity?"),
        (["qqq"], 2, "there is no pipeline qqq: there are activity, "),
        (["./nowhere.py"], 2, "there is no file nowhere.py: `ottla pipeline new NAME` writes one"),
        (["{none}"], 2, "{none} has no PIPELINE = Pipeline(...): `ottla pipeline new NAME` shows what"),
        (["{broken}"], 1, "{broken} is not valid Python ("),
        (["activity", "--option", "prt=live"], 2, "activity has no option prt: did you mean part?"),
        (["activity", "--option", "part=all"], 2, "part=all: choose one of live, report, both"),
    ],
)
def test_what_does_not_exist_is_one_line(
    run: Run, tmp_path: Path, arguments: list[str], code: int, sentence: str
) -> None:
    files = {"none": tmp_path / "none.py", "broken": tmp_path / "broken.py"}
    files["none"].write_text("")
    files["broken"].write_text("def (")
    failed = run("pipeline", "run", *(word.format(**files) for word in arguments), code=code)
    assert failed.err.startswith(f"ottla: {sentence.format(**files)}")
    assert failed.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["list"], ["run", "activity"]])
def test_without_the_extra_one_line_says_what_to_install(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(arguments=arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "ottla: pipelines need pyspark: pip install 'ottla[spark]'\n"


def test_help_shows_the_options_of_a_pipeline(run: Run) -> None:
    assert "NAME_OR_FILE" in run("pipeline", "run", "--help").out
    shown = run("pipeline", "run", "activity", "--help").out
    assert "--generate" in shown
    assert "gap=30 minutes" in shown


def test_status_tells_of_all_that_have_run(run: Run, tmp_path: Path) -> None:
    here = {"OTTLA_PIPELINES": str(tmp_path)}
    assert run("pipeline", "status", "--json", **here).document == []
    running = Tenure.take(tmp_path / "one")
    running.write(RunState("one", state.RUNNING, 1, "h", time.time(), progress=(QueryProgress("one-a", 7, 9, 2.5, 3),)))
    for name, how, why in (("two", state.FAILED, "the disk is full"), ("three", state.RUNNING, "")):
        ended = Tenure.take(tmp_path / name)
        ended.write(RunState(name, how, 1, "h", time.time(), reason=why))
        ended.release()
    shown = run("pipeline", "status", **here).lines
    rows = {line.split()[0]: line.split() for line in shown[2:] if not line.startswith(("two: ", "three: "))}
    assert rows["one"][1:6] == ["running", "one-a", "7", "2.5", "3"]
    assert rows["two"][1] == "failed"
    assert rows["three"][1] == "killed"
    assert "two: the disk is full" in shown
    assert {one["name"]: one["state"] for one in run("pipeline", "status", "--json", **here).document} == {
        "one": "running",
        "two": "failed",
        "three": "killed",
    }
    assert len(run("pipeline", "status", "two", "--json", **here).document) == 1
    running.release()


def test_stop_of_what_does_not_run(run: Run, tmp_path: Path) -> None:
    here = {"OTTLA_PIPELINES": str(tmp_path)}
    never = run("pipeline", "stop", "visits", code=1, **here)
    assert never.err.startswith(f"ottla: visits has never run in {tmp_path / 'visits'}")
    ended = Tenure.take(tmp_path / "visits")
    ended.write(RunState("visits", state.RUNNING, 1, "h", time.time()))
    still = run("pipeline", "stop", "visits", "--timeout", "0", code=1, **here)
    assert "visits (process 1 on h) is still running after 0 s" in still.err
    ended.release()
    assert "visits is not running: killed since" in run("pipeline", "stop", "visits", **here).err


MAKES = """
from ottla.spark.runner import Pipeline

def run(run):
    pass

def generate(run):
    print("stopped" if run.stopping else f"makes {run.count}")

PIPELINE = Pipeline("makes", "Makes.", run, (), generate)
"""


def test_input_is_made_up_also_after_a_stop(run: Run, tmp_path: Path) -> None:
    """The wish to stop was for the run that has ended; the file is there until the next one begins."""
    (tmp_path / "makes.py").write_text(MAKES)
    state.ask_to_stop(tmp_path)
    made = run("pipeline", "run", str(tmp_path / "makes.py"), "--folder", str(tmp_path), "--generate-only")
    assert made.out == "makes 10000\n"


def test_a_new_pipeline_is_python_and_replaces_nothing(run: Run, tmp_path: Path) -> None:
    shown = run("pipeline", "new", "word-count", "--folder", str(tmp_path))
    assert [line.split()[-1] for line in shown.lines[:2]] == [
        str(tmp_path / "word_count.py"),
        str(tmp_path / "test_word_count.py"),
    ]
    for path in tmp_path.glob("*.py"):
        ast.parse(path.read_text())
        assert "$" not in path.read_text()
    assert "Adds up the orders" in run("pipeline", "run", str(tmp_path / "word_count.py"), "--help").out
    again = run("pipeline", "new", "word-count", "--folder", str(tmp_path), code=1)
    assert "word_count.py already exists" in again.err
    for name in ("Word", "a--b", "1st", "copy"):
        assert run("pipeline", "new", name, "--folder", str(tmp_path), code=1).err.startswith(f"ottla: {name}: ")
    style = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "120", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert style.returncode == 0, style.stdout


def test_json_is_json(run: Run, tmp_path: Path) -> None:
    assert json.loads(run("pipeline", "status", "--json", OTTLA_PIPELINES=str(tmp_path)).out) == []
