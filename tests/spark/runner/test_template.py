"""The output of `ottla pipeline new` runs unchanged: the pipeline and its test."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from spark import jvm
from spark.launching import START_S

from ottla.spark.runner.template import write_files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(1200)


def test_its_test_passes(tmp_path: Path) -> None:
    """In a process of its own, which knows nothing of this project's settings."""
    _, test = write_files("word-count", tmp_path)
    test.write_text(test.read_text().replace("timeout=150", f"timeout={START_S:.0f}"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(test)],
        capture_output=True,
        text=True,
        timeout=2 * START_S,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "JAVA_TOOL_OPTIONS": " ".join(jvm.options())},  # so that Spark starts fast
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
