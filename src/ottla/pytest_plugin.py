"""A real broker for the tests of any project: installed with Ottla, used through fixtures.

    def test_orders(ottla_producer, ottla_namespace):
        ottla_producer.produce(ottla_namespace.topic("orders"), b"1")

    ottla_broker             one broker for the whole run, started when the first test uses it
    ottla_broker_per_test    a broker for this test only, empty, removed afterwards
    ottla_aio_broker         the same on the event loop of an async test
    ottla_tls_broker         one with TLS and logins for the whole run, and settings for clients; needs cryptography
    ottla_cluster            three brokers and a real ZooKeeper for this test, to kill and disconnect; needs Java
    ottla_namespace          names of topics, groups and transactions that no other test uses; the same for a module
                             (ottla_module_namespace) and for the run (ottla_session_namespace)
    ottla_producer, ottla_consumer, ottla_admin               clients of `ottla_broker`, from confluent-kafka
    ottla_aio_producer, ottla_aio_consumer, ottla_aio_admin   the same from aiokafka, for async tests

In the ini file: `ottla_mode = process` (default; its own core) or `thread` (starts a little faster), and
`ottla_options`, one broker option a line. `--ottla-mode` on the command line wins.

The report of a failed test contains the log of its brokers during the test. Faults that a test injects end with it, and
a broker for the whole run that a test leaves stopped or paused runs again. The client libraries are only needed for
their own fixtures.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator

    from ottla.embed import Broker, BrokerProcess, BrokerThread
    from ottla.testing import Cluster, SecuredBroker

MODES = ("process", "thread")
NAME_MAX = 100  # of Kafka's 249 characters for a topic; the test has the rest
RUNNING = pytest.StashKey["list[BrokerProcess | BrokerThread]"]()  # brokers of fixtures
SHARED = pytest.StashKey["list[BrokerProcess | BrokerThread]"]()  # those of them that serve the whole run
LOG_STARTS = pytest.StashKey["dict[int, int]"]()  # position in each broker's log at the start of a test


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
    parser.addini("ottla_options", "broker options, name=value, one per line", type="linelist", default=[])


@pytest.fixture(scope="session")
def ottla_broker(pytestconfig: pytest.Config) -> Iterator[BrokerProcess | BrokerThread]:
    """A broker for the whole run: `.bootstrap` is its address."""
    for broker in run_broker(pytestconfig):
        shared = pytestconfig.stash.setdefault(SHARED, [])
        shared.append(broker)
        yield broker
        shared.remove(broker)


@pytest.fixture
def ottla_broker_per_test(pytestconfig: pytest.Config) -> Iterator[BrokerProcess | BrokerThread]:
    """A broker for this test only: empty at the start, removed at the end."""
    yield from run_broker(pytestconfig)


@pytest.fixture(scope="session")
def ottla_tls_broker(pytestconfig: pytest.Config) -> Iterator[SecuredBroker]:
    """A broker with TLS and SASL listeners for the whole run: see `ottla.testing.SecuredBroker`."""
    load("cryptography", "ottla_tls_broker")
    from ottla.testing import SecuredBroker

    running = pytestconfig.stash.setdefault(RUNNING, [])
    with SecuredBroker(options=read_options(pytestconfig), mode=read_mode(pytestconfig)) as secured:
        shared = pytestconfig.stash.setdefault(SHARED, [])
        running.append(secured.broker)
        shared.append(secured.broker)
        yield secured
        shared.remove(secured.broker)
        running.remove(secured.broker)


@pytest.fixture
def ottla_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Three brokers on a real ZooKeeper: `.bootstrap`, and the methods of `ottla.testing.Cluster` to break them."""
    from ottla.testing import Cluster

    with Cluster(3, options=read_options(pytestconfig), cuts=True) as cluster:
        running = pytestconfig.stash.setdefault(RUNNING, [])
        running += cluster.brokers.values()
        yield cluster
        running[:] = [one for one in running if one not in cluster.brokers.values()]


@pytest.fixture
def ottla_namespace(request: pytest.FixtureRequest) -> Namespace:
    """New names, so that tests can share a broker without sharing records."""
    return new_namespace(request.node.name)


@pytest.fixture(scope="module")
def ottla_module_namespace(request: pytest.FixtureRequest) -> Namespace:
    """Names that the tests of one module share."""
    return new_namespace(request.node.name.removesuffix(".py"))


@pytest.fixture(scope="session")
def ottla_session_namespace() -> Namespace:
    """Names that all tests of the run share."""
    return new_namespace("session")


@pytest.fixture
def ottla_producer(ottla_broker: BrokerProcess | BrokerThread) -> Iterator[Any]:
    """A `confluent_kafka.Producer`. Unsent records are sent at the end."""
    producer = load("confluent_kafka", "ottla_producer").Producer({"bootstrap.servers": ottla_broker.bootstrap})
    yield producer
    producer.flush(10)


@pytest.fixture
def ottla_consumer(ottla_broker: BrokerProcess | BrokerThread, ottla_namespace: Namespace) -> Iterator[Any]:
    """A `confluent_kafka.Consumer` in a new group that starts at the earliest offset; `subscribe` it."""
    options = {"group.id": ottla_namespace.group(), "auto.offset.reset": "earliest"}
    consumer = load("confluent_kafka", "ottla_consumer").Consumer(
        {"bootstrap.servers": ottla_broker.bootstrap, **options}
    )
    yield consumer
    consumer.close()


@pytest.fixture
def ottla_admin(ottla_broker: BrokerProcess | BrokerThread) -> Any:
    """A `confluent_kafka.admin.AdminClient`."""
    return load("confluent_kafka.admin", "ottla_admin").AdminClient({"bootstrap.servers": ottla_broker.bootstrap})


def async_fixture(function: Callable[..., Any]) -> Any:
    """pytest-asyncio, if installed, runs only the fixtures that it has marked itself; anyio runs any."""
    if importlib.util.find_spec("pytest_asyncio") is None:
        return pytest.fixture(function)
    return importlib.import_module("pytest_asyncio").fixture(function)


@async_fixture
async def ottla_aio_broker(pytestconfig: pytest.Config) -> AsyncIterator[Broker]:
    """A broker on the event loop of the test: empty at the start, removed at the end."""
    from ottla.embed import Broker

    async with Broker(options=read_options(pytestconfig)) as broker:
        yield broker


@async_fixture
async def ottla_aio_producer(ottla_broker: BrokerProcess | BrokerThread) -> AsyncIterator[Any]:
    """A started `AIOKafkaProducer`."""
    producer = load("aiokafka", "ottla_aio_producer").AIOKafkaProducer(bootstrap_servers=ottla_broker.bootstrap)
    await producer.start()
    yield producer
    await producer.stop()


@async_fixture
async def ottla_aio_consumer(
    ottla_broker: BrokerProcess | BrokerThread, ottla_namespace: Namespace
) -> AsyncIterator[Any]:
    """A started `AIOKafkaConsumer` in a new group that starts at the earliest offset; `subscribe` it."""
    consumer = load("aiokafka", "ottla_aio_consumer").AIOKafkaConsumer(
        bootstrap_servers=ottla_broker.bootstrap, group_id=ottla_namespace.group(), auto_offset_reset="earliest"
    )
    await consumer.start()
    yield consumer
    await consumer.stop()


@async_fixture
async def ottla_aio_admin(ottla_broker: BrokerProcess | BrokerThread) -> AsyncIterator[Any]:
    """A started `AIOKafkaAdminClient`."""
    client = load("aiokafka.admin", "ottla_aio_admin").AIOKafkaAdminClient(bootstrap_servers=ottla_broker.bootstrap)
    await client.start()
    yield client
    await client.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[LOG_STARTS] = {id(broker): broker.log_size for broker in logging_brokers(item.config)}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        starts = item.stash.get(LOG_STARTS, {})
        for broker in logging_brokers(item.config):
            if said := broker.read_log(starts.get(id(broker), 0)):
                report.sections.append((f"Log of the broker at {broker.bootstrap}", said))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    for process in logging_brokers(item.config):
        if process.paused:  # it would not answer
            process.resume()
    for broker in item.config.stash.get(RUNNING, []):
        if broker.running:
            with suppress(OSError):  # the process has just ended
                broker.clear_faults()
    for broker in item.config.stash.get(SHARED, []):
        if not broker.running:  # the test left it so, or failed before it started it again
            broker.kill()  # what is left of a process that ended by itself
            broker.start()


def logging_brokers(config: pytest.Config) -> list[BrokerProcess]:
    """Those with their own log: pytest itself captures the log of a broker in a thread."""
    running = config.stash.get(RUNNING, [])
    if not running:
        return []
    from ottla.embed import BrokerProcess

    return [broker for broker in running if isinstance(broker, BrokerProcess)]


def run_broker(config: pytest.Config) -> Iterator[BrokerProcess | BrokerThread]:
    running = config.stash.setdefault(RUNNING, [])
    with new_broker(config) as broker:
        running.append(broker)
        yield broker
        running.remove(broker)


def new_broker(config: pytest.Config) -> BrokerProcess | BrokerThread:
    from ottla.embed import BrokerProcess, BrokerThread

    options = read_options(config)
    if read_mode(config) == "process":
        return BrokerProcess(options=options, log_level="info")
    return BrokerThread(options=options)


def read_mode(config: pytest.Config) -> str:
    mode = str(config.getoption("--ottla-mode") or config.getini("ottla_mode"))
    if mode not in MODES:
        raise pytest.UsageError(f"ottla_mode = {mode}: expected {' or '.join(MODES)}")
    return mode


def new_namespace(name: str) -> Namespace:
    import secrets

    prefix = re.sub(r"[^a-zA-Z0-9_-]+", "-", name).strip("-")[:NAME_MAX]
    return Namespace(f"{prefix}-{secrets.token_hex(4)}")


def load(module: str, fixture: str) -> Any:
    """Import a client library, or tell what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise pytest.UsageError(f"{fixture} needs {package}: pip install {package}") from error


def read_options(config: pytest.Config) -> dict[str, str]:
    return dict(parse_option(line) for line in config.getini("ottla_options"))


def parse_option(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals:
        raise pytest.UsageError(f"ottla_options: {line}: expected name=value")
    return name.strip(), value.strip()
