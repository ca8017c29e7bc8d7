"""Rules that `ottla acl` makes are those that Apache Kafka's tool shows, and the other way round."""

from collections.abc import Callable, Iterator
from typing import Any

import judge
import pytest

from ottla.embed import BrokerThread

Run = Callable[..., Any]
TOOL = "org.apache.kafka.tools.AclCommand"
OPTIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    with BrokerThread(options=OPTIONS) as running:
        yield running.bootstrap


def test_rules_come_and_go(run: Run, secured: str) -> None:
    here = ("--bootstrap", secured)
    added = run(
        "acl", "add", "--allow", "ann", "--deny", "User:bob", "-t", "orders", "-o", "read", "-o", "write", *here
    )
    assert added.out == "4 rules added\n"
    run("acl", "add", "--allow", "User:ann", "-g", "shop", "--prefixed", "-o", "read", "--host", "10.0.0.1", *here)
    rows = run("acl", "list", "--json", *here).document
    assert len(rows) == 5
    assert rows[-1] == {
        "principal": "User:ann",
        "permission": "allow",
        "operation": "read",
        "resource": "group",
        "name": "shop",
        "pattern": "prefixed",
        "host": "10.0.0.1",
    }
    assert len(run("acl", "list", "-g", "shoppers", "--json", *here).document) == 1
    assert run("acl", "list", "-g", "other", *here).out == "No rules.\n"
    assert "User:bob" in run("acl", "list", "--principal", "User:bob", *here).out
    assert run("acl", "remove", "--deny", "bob", "-t", "orders", *here).out == "2 rules removed\n"
    assert len(run("acl", "list", "--json", *here).document) == 3
    as_in_kafka = run("acl", "add", "--allow", "ann", "--user", "bob", "-o", "CreateTokens", *here)
    assert as_in_kafka.out == "1 rule added\n"
    run("acl", "add", "--allow", "ann", "--delegation-token", "*", "-o", "describe", *here)
    listed = run("acl", "list", "--user", "bob", "--json", *here).document
    assert [(row["resource"], row["name"]) for row in listed] == [("user", "User:bob")]
    run("acl", "remove", "--allow", "ann", "--user", "User:bob", "--delegation-token", "*", *here)
    assert "unknown operation 'fly'" in run("acl", "add", "--allow", "a", "-t", "x", "-o", "fly", *here, code=2).err
    assert "--topic" in run("acl", "add", "--allow", "a", "-o", "read", *here, code=2).err


def test_without_an_authorizer_it_says_so(run: Run) -> None:
    assert "SECURITY_DISABLED" in run("acl", "list", code=1).err


def test_the_tool_of_apache_kafka(run: Run, secured: str) -> None:
    server = ("--bootstrap-server", secured)
    judge.tool(TOOL, *server, "--add", "--allow-principal", "User:carl", "--producer", "--topic", "bills", "--force")
    mine = run("acl", "list", "-t", "bills", "--json", "--bootstrap", secured).document
    assert {row["operation"] for row in mine} == {"write", "describe", "create"}
    shown = judge.tool(TOOL, *server, "--list", "--topic", "bills").out
    assert "principal=User:carl, host=*, operation=WRITE, permissionType=ALLOW" in shown
    judge.tool(TOOL, *server, "--remove", "--topic", "bills", "--force")
    assert run("acl", "list", "-t", "bills", "--bootstrap", secured).out == "No rules.\n"
