"""A real broker for the tests of any project: installed with Ottla, used by naming a fixture.

    def test_orders(ottla_broker, ottla_namespace):
        topic = ottla_namespace.topic("orders")
        producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})

    ottla_broker            one broker for the whole run, started when the first test asks for it
    ottla_broker_per_test   a broker of the test's own, empty, gone afterwards
    ottla_cluster           three brokers and a real ZooKeeper of the test's own, to kill, pause and cut off; needs Java
    ottla_namespace         names of topics, groups and transactions that no other test has

In the ini file: `ottla_mode = process` (default; a core of its own) or `thread` (starts a little faster), and
`ottla_options`, one broker option a line. `--ottla-mode` on the command line wins.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.embed import BrokerProcess, BrokerThread
    from ottla.testing import Cluster

MODES = ("process", "thread")
NAME_MAX = 100  # of Kafka's 249 characters for a topic; the rest is the test's


class Namespace:
    """Names for one test. They start with the test's name, so that a log or a console shows whose topic it is."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def topic(self, name: str = "topic") -> str:
        return f"{self.prefix}.{name}"

    def group(self, name: str = "group") -> str:
        return f"{self.prefix}.{name}"

    def transaction(self, name: str = "transaction") -> str:
        return f"{self.prefix}.{name}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("ottla").addoption("--ottla-mode", choices=MODES, help="where the broker of `ottla_broker` runs")
    parser.addini("ottla_mode", f"where the broker of `ottla_broker` runs: {' or '.join(MODES)}", default=MODES[0])
    parser.addini("ottla_options", "broker options, name=value, one a line", type="linelist", default=[])


@pytest.fixture(scope="session")
def ottla_broker(pytestconfig: pytest.Config) -> Iterator[BrokerProcess | BrokerThread]:
    """A broker for the whole run: `.bootstrap` is its address."""
    with new_broker(pytestconfig) as broker:
        yield broker


@pytest.fixture
def ottla_broker_per_test(pytestconfig: pytest.Config) -> Iterator[BrokerProcess | BrokerThread]:
    """A broker that only this test sees: empty at the start, gone at the end."""
    with new_broker(pytestconfig) as broker:
        yield broker


@pytest.fixture
def ottla_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Three brokers on a real ZooKeeper: `.bootstrap`, and what `ottla.testing.Cluster` can do to them."""
    from ottla.testing import Cluster

    with Cluster(3, options=options_of(pytestconfig), cuts=True) as cluster:
        yield cluster


@pytest.fixture
def ottla_namespace(request: pytest.FixtureRequest) -> Namespace:
    """Fresh names, so that tests share one broker and not their records."""
    import secrets

    name = re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name).strip("-")[:NAME_MAX]
    return Namespace(f"{name}-{secrets.token_hex(4)}")


def new_broker(config: pytest.Config) -> BrokerProcess | BrokerThread:
    from ottla.embed import BrokerProcess, BrokerThread

    mode = config.getoption("--ottla-mode") or config.getini("ottla_mode")
    if mode not in MODES:
        raise pytest.UsageError(f"ottla_mode = {mode}: expected {' or '.join(MODES)}")
    kind = BrokerProcess if mode == "process" else BrokerThread
    return kind(options=options_of(config))


def options_of(config: pytest.Config) -> dict[str, str]:
    return dict(option(line) for line in config.getini("ottla_options"))


def option(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals:
        raise pytest.UsageError(f"ottla_options: {line}: expected name=value")
    return name.strip(), value.strip()
