"""Spark ends the planner of a query by signals, sometimes several, or by ending itself."""

import signal
import subprocess
import sys

import pytest

from ottla.embed import BrokerProcess

PLANNER = """
import sys
from ottla.spark.source.data_source import OttlaDataSource
source = OttlaDataSource({"kafka.bootstrap.servers": sys.argv[1], "subscribe": "t", "ottla.group": "g"})
reader = source.streamReader(source.schema())
start = reader.initialOffset()
reader.latestOffset(start, reader.getDefaultReadLimit())
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("times", [1, 20])
def test_a_planner_ends_however_often_it_is_told(times: int) -> None:
    with BrokerProcess() as broker:
        created = [sys.executable, "-m", "ottla", "topics", "create", "t", "--bootstrap", broker.bootstrap]
        subprocess.run(created, check=True, capture_output=True, timeout=60)
        command = [sys.executable, "-c", PLANNER, broker.bootstrap]
        planner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert planner.stdout is not None
            assert planner.stdout.readline() == "ready\n"
            for _ in range(times):
                planner.send_signal(signal.SIGTERM)
            assert planner.wait(60) == 0
        finally:
            planner.kill()
            planner.communicate()
