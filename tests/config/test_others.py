"""Options of Kafka that do nothing here: taken, refused when that would be unsafe, or unknown to everybody."""

import pytest

from ottla.config import ConfigError, load


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("sasl.jaas.config", "x", "per listener and mechanism"),
        ("ssl.engine.factory.class", "a.B", "Java classes cannot be loaded"),
        ("sasl.server.callback.handler.class", "a.B", "Java classes cannot be loaded"),
        ("listener.name.plaintext.principal.builder.class", "a.B", "cannot be set for one listener"),
        ("listener.name.other.ssl.keystore.location", "x", "there is no listener OTHER"),
        ("listener.name.plaintext.gssapi.sasl.jaas.config", "x", "the mechanism must be one of PLAIN"),
        ("zookeeper.ssl.crl.enable", "true", "ZooKeeper client does not support"),
        ("create.topic.policy.class.name", "a.B", "Java classes cannot be loaded"),
        ("config.providers", "file", "Java classes cannot be loaded"),
        ("cordoned.log.dirs", "/a", "closed to new partitions"),
    ],
)
def test_what_would_be_unsafe_to_ignore_is_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: .*{words}"):
        load({name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("ssl.client.auth", "none"), ("authorizer.class.name", ""), ("num.io.threads", "8")]
)
def test_a_default_asks_for_nothing(name: str, value: str) -> None:
    assert load({name: value}).notices == ()


def test_idle_options_are_named_in_one_line() -> None:
    notices = load({"num.io.threads": "4", "background.threads": "5", "rsm.config.x": "y"}).notices
    assert notices == ("options without effect in Ottla: background.threads, num.io.threads, rsm.config.x",)


def test_idle_options_still_need_a_value_of_their_type() -> None:
    with pytest.raises(ConfigError, match=r"num.io.threads: Not a number of type INT"):
        load({"num.io.threads": "many"})


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("log.segment.byte", "log.segment.bytes"),
        ("num.io.thread", "num.io.threads"),
        ("log.retention", "log.retention"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option {name}: did you mean {near}"):
        load({name: "1"})


def test_a_name_that_kafka_removed_is_refused_with_its_successor() -> None:
    with pytest.raises(ConfigError, match=r"^unknown option host.name: Kafka 3.0 removed it, use listeners$"):
        load({"host.name": "localhost"})


def test_a_name_that_resembles_nothing_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"^unknown option xyzzy$"):
        load({"xyzzy": "1"})
