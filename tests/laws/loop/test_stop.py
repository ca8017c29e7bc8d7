"""A broker stops when asked, also while its loop is blocked, or while it still reads its logs."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# `ottla serve` with a patch that blocks the loop for ever, or never finishes opening the logs.
SERVE = """
import runpy, sys, time
import ottla.broker, ottla.serve
from ottla.log.store import LogStore
{added}
sys.argv = ["ottla", "serve", *sys.argv[1:]]
runpy.run_module("ottla", run_name="__main__", alter_sys=True)
"""
HOLD = """
ottla.serve.DEAF_S_MAX = {deaf}
announce = ottla.serve.announce
def hold(broker, plan):
    announce(broker, plan)
    while True:
        sum(range(1000))
ottla.serve.announce = hold
"""
READ = """
def read(self, config_for, **options):
    print("reading", flush=True)
    while True:
        time.sleep(0.01)
LogStore.open = read
"""
TIMEOUT_S = 60


def serving(folder: Path, added: str, sign: str) -> subprocess.Popen[str]:
    arguments = ["--data", str(folder), "--port", "0", "--host", "127.0.0.1"]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(added=added), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if sign in line:
            return process
    raise AssertionError(process.communicate())


def test_a_second_signal_ends_a_broker_whose_loop_is_held(tmp_path: Path) -> None:
    with serving(tmp_path, HOLD.format(deaf=TIMEOUT_S * 2), "is ready") as process:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
        assert process.returncode in (-signal.SIGINT, -signal.SIGTERM)


def test_one_signal_ends_it_after_a_while_and_says_why(tmp_path: Path) -> None:
    with serving(tmp_path, HOLD.format(deaf=0.1), "is ready") as process:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == -signal.SIGTERM
        assert "too busy to stop in good order" in log


def test_a_start_that_takes_long_is_cut_short(tmp_path: Path) -> None:
    with serving(tmp_path, READ, "reading") as process:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        assert "stopping signal=SIGTERM" in log
