"""Every client reads what every other wrote: the same keys, values, headers and times, in every codec.

Each writer fills one topic per codec; then each reader reads all of them. Readers of the old formats see everything but
headers (and, before 0.10, times), because the broker converts down for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from compat.clients import Client, Record, Stored
from compat.families import LACKS, OLD, opened
from compat.raw import Raw, create_topic
from compat.test_clients import story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import judge
    from process import Ottla

pytestmark = pytest.mark.xdist_group("cross")


class Shelf(NamedTuple):
    """One topic and what was written to it."""

    writer: str
    codec: str
    topic: str
    records: list[Record]


@pytest.fixture(scope="module")
def clients(broker: Ottla | judge.Kafka, old_broker: Ottla | judge.Kafka) -> Iterator[dict[str, Client]]:
    """Every client that the judged broker serves, all on one broker."""
    names = [name for name in LACKS if broker is old_broker or name not in OLD]
    running = {name: opened(name, broker.bootstrap) for name in names}
    yield running
    for client in running.values():
        client.close()


@pytest.fixture(scope="module")
def library(clients: dict[str, Client], broker: Ottla | judge.Kafka, fresh: Callable[[str], str]) -> list[Shelf]:
    shelves = []
    with Raw(broker.port) as raw:
        for name, client in clients.items():
            records = story(client)
            for codec in client.codecs:
                topic = fresh(f"by-{name}-{codec}")
                assert create_topic(raw, topic) == 0
                assert client.produce(topic, records, codec=codec) == list(range(len(records)))
                if "times" in client.lacks:  # the broker stores -1 for what a magic 0 record cannot say
                    records = [record._replace(timestamp=-1) for record in records]
                shelves.append(Shelf(name, codec, topic, records))
    return shelves


@pytest.mark.parametrize("reader", LACKS)
def test_everybody_reads_what_anybody_wrote(
    reader: str, clients: dict[str, Client], library: list[Shelf], pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("judge") and reader in OLD:
        assert reader not in clients, "Apache Kafka 4 does not serve it"
        return
    client = clients[reader]
    assert len({shelf.writer for shelf in library}) == len(clients)
    for shelf in library:
        if shelf.codec not in client.codecs:
            continue  # a codec younger than the reader
        found = client.consume(shelf.topic, 0, len(shelf.records))
        wanted = [Stored(at, seen_by(client, record)) for at, record in enumerate(shelf.records)]
        assert found == wanted, f"{reader} reads what {shelf.writer} wrote with {shelf.codec}"


def seen_by(client: Client, record: Record) -> Record:
    if "headers" in client.lacks:
        record = record._replace(headers=())
    if "times" in client.lacks:
        record = record._replace(timestamp=None)
    return record
