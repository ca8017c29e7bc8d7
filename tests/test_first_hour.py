"""A new user's first hour: a new project with one dependency, and the first tests of docs/testing.md."""

import re
import resource
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "testing.md"
PROJECT = """
[project]
name = "shop"
version = "1"
[dependency-groups]
test = ["ottla"]
[tool.pytest.ini_options]
ottla_mode = "thread"
"""
# A new project has no plugins of other packages; and importing Hypothesis takes as long as the five tests.
WITHOUT = [word for name in ("cacheprovider", "hypothesispytest", "timeout", "xdist") for word in ("-p", f"no:{name}")]


def test_a_new_project_with_one_dependency(pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    pytester.makepyfile(test_shop=block)
    pytester.makepyprojecttoml(PROJECT)
    before = cpu_s()
    result = pytester.runpytest_subprocess(*WITHOUT, "-vv", "--durations=0", "--durations-min=0")
    used_s = cpu_s() - before
    result.assert_outcomes(passed=5)
    spent = [float(line.split("s")[0]) for line in result.outlines if re.match(r"[\d.]+s (setup|call|teardown)", line)]
    with capsys.disabled():
        print(
            f"\nfive tests of a new project, in thread mode: {sum(spent):.2f} s; {used_s:.1f} s of CPU with all imports"
        )


def cpu_s() -> float:
    """CPU time of child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
