"""The console's view of znodes, on a real ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster.zookeepers import close_session
from waiting import wait_until

from ottla.client.failure import Failed
from ottla.console.znodes import Tree
from ottla.testing.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def tree(server: ZooKeeperServer) -> Iterator[Tree]:
    tree = Tree(server.address)
    yield tree
    tree.close()


def test_a_node_is_read_with_the_names_of_its_children(tree: Tree) -> None:
    root = tree.node("/")
    assert root.children == ["zookeeper"]
    assert (root.more, root.ephemeral) == (0, False)
    with pytest.raises(Failed, match="there is no znode /gone any more"):
        tree.node("/gone")


def test_reading_goes_on_after_the_session_has_ended_unused(tree: Tree, server: ZooKeeperServer) -> None:
    tree.node("/")
    session, password = tree._client.client_id
    wait_until(lambda: close_session(server, session, password), "the session could not be closed")
    assert tree.node("/").children == ["zookeeper"]


def test_a_server_that_is_down_is_reported_and_read_again_when_it_is_back(tree: Tree, server: ZooKeeperServer) -> None:
    tree.node("/")
    server.kill()
    for _ in range(2):
        with pytest.raises(Failed, match=f"ZooKeeper at {server.address} does not answer"):
            tree.node("/")
    server.start()
    assert tree.node("/").children == ["zookeeper"]


def test_the_first_read_succeeds_after_a_restart_that_nobody_noticed(tree: Tree, server: ZooKeeperServer) -> None:
    tree.node("/")
    client = tree._client
    server.kill()
    wait_until(lambda: not client.connected, "the client still believes in its connection")
    server.start()
    assert tree.node("/").children == ["zookeeper"]
