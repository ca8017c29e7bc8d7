"""Where the metrics are: any number of brokers on one machine, each with an address of its own that it tells."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from handlers.wired import Wired

from ottla.config import ConfigError, load
from ottla.embed import BrokerFailed, BrokerThread
from ottla.metrics import endpoint
from ottla.metrics.endpoint import ADDRESS_FILE, bind_metrics
from ottla.testing.ports import free_ports
from ottla.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.metadata import ApiVersionsRequest

if TYPE_CHECKING:
    from pathlib import Path

TELEMETRY = {71, 72}


def keys(broker: BrokerThread) -> set[int]:
    with Wired(int(broker.bootstrap.rpartition(":")[2])) as wired:
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        return {one.api_key for one in wired.ask(request, 3).api_keys}


def test_brokers_of_one_machine_do_not_meet(tmp_path: Path) -> None:
    ports = free_ports(3)
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(BrokerThread(data=tmp_path / str(port), port=port, options={"node.id": at}))
            for at, port in enumerate(ports, 1)
        ]
        assert len({broker.metrics for broker in brokers}) == 3
        for broker, port in zip(brokers, ports, strict=True):
            with urllib.request.urlopen(f"{broker.metrics}/health", timeout=60) as answer:
                assert answer.status == 200
            assert (tmp_path / str(port) / ADDRESS_FILE).read_text() == f"{broker.metrics}\n"
            assert told_by_protocol(broker) == broker.metrics.removeprefix("http://")
            assert not keys(broker) & TELEMETRY, "nobody has subscribed"
    assert not list(tmp_path.glob(f"*/{ADDRESS_FILE}")), "it goes with the broker"


def told_by_protocol(broker: BrokerThread) -> str | None:
    resource = DescribeConfigsResource(
        resource_type=4, resource_name=str(broker.node_id), configuration_keys=["ottla.metrics.listener"]
    )
    with Wired(int(broker.bootstrap.rpartition(":")[2])) as wired:
        found: str | None = wired.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs[0].value
        return found


def test_the_usual_port_is_taken_when_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(endpoint, "PORT", port)
    with (
        bind_metrics("127.0.0.1", None, any_free=False) as first,
        bind_metrics("127.0.0.1", None, any_free=False) as second,
    ):
        assert first.getsockname()[1] == port
        assert second.getsockname()[1] != port
    with bind_metrics("127.0.0.1", None, any_free=True) as other:
        assert other.getsockname()[1] != port


def test_a_port_that_was_asked_for_must_be_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerFailed, match=f"ottla.metrics.listener {address}"):
            BrokerThread(options={"ottla.metrics.listener": address}).start()


def test_off_opens_nothing_and_takes_no_metrics_of_clients() -> None:
    with BrokerThread(options={"ottla.metrics.listener": "off", "ottla.client.metrics": "always"}) as broker:
        assert broker.metrics == ""
        assert not keys(broker) & TELEMETRY
    with BrokerThread(options={"ottla.client.metrics": "always"}) as broker:
        assert keys(broker) >= TELEMETRY


@pytest.mark.parametrize("text", ["", "9404", "host:port", "host:70000", "::1:80", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ottla\.metrics\.listener"):
        load({"ottla.metrics.listener": text})
