"""The plugin in a project of somebody else's: pytester writes one, runs it, looks at what came out."""

import pytest

pytest_plugins = ["pytester"]

HELLO = """
    from confluent_kafka import Producer

    def send(broker, topic):
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, b"hello")
        assert producer.flush(30) == 0
        return set(producer.list_topics(timeout=30).topics)
"""


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_one_broker_serves_the_whole_run(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(
        HELLO
        + f"""
    seen = []

    def test_one(ottla_broker, ottla_namespace):
        assert type(ottla_broker).__name__.lower() == "broker{mode}"
        seen.append((ottla_broker.bootstrap, ottla_namespace.topic("t")))
        assert ottla_namespace.topic("t") in send(ottla_broker, ottla_namespace.topic("t"))

    def test_two(ottla_broker, ottla_namespace):
        (address, topic), = seen
        assert ottla_broker.bootstrap == address
        assert ottla_namespace.topic("t") != topic
        assert topic in send(ottla_broker, ottla_namespace.topic("t")), "the same broker, other names"
    """
    )
    pytester.makeini(f"[pytest]\nottla_mode = {mode}\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_a_broker_per_test_is_empty(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HELLO
        + """
    import pytest

    @pytest.mark.parametrize("time", [1, 2])
    def test_alone(ottla_broker_per_test, time):
        assert send(ottla_broker_per_test, f"t{time}") == {f"t{time}"}
    """
    )
    pytester.runpytest_subprocess("--ottla-mode", "thread").assert_outcomes(passed=2)


def test_broker_options_come_from_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HELLO
        + """
    def test_partitions(ottla_broker):
        send(ottla_broker, "t")
        producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
        assert len(producer.list_topics("t", timeout=30).topics["t"].partitions) == 5
    """
    )
    pytester.makeini("[pytest]\nottla_options =\n    num.partitions = 5\n    log.retention.ms=70000\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_names_are_fit_for_topics_whatever_the_test_is_called(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
    import re, pytest

    @pytest.mark.parametrize("value", ["a/b c", "é" * 200])
    def test_name(ottla_namespace, value):
        names = {ottla_namespace.topic("x"), ottla_namespace.group("y"), ottla_namespace.transaction("z")}
        assert len(names) == 3
        for name in names:
            assert re.fullmatch("[a-zA-Z0-9._-]{1,249}", name)
            assert name.startswith("test_name")
    """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("ini", "said"),
    [
        ("ottla_mode = docker", "ottla_mode = docker: expected"),
        ("ottla_options = oops", "ottla_options: oops: expected"),
    ],
)
def test_a_setting_that_makes_no_sense_is_said(pytester: pytest.Pytester, ini: str, said: str) -> None:
    pytester.makepyfile("def test_it(ottla_broker): pass")
    pytester.makeini(f"[pytest]\n{ini}\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*UsageError: {said}*"])


def test_a_run_that_asks_for_no_broker_starts_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_it(): assert 'ottla.embed' not in sys.modules")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_cluster_of_the_tests_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HELLO
        + """
    def test_cluster(ottla_cluster):
        send(ottla_cluster, "t")  # a broker may hear of the topic a moment after the one that took the record
        assert sorted(ottla_cluster.brokers) == [1, 2, 3]
        leader = ottla_cluster.leader("t", 0)
        assert leader in (1, 2, 3)
        ottla_cluster.restart(leader)
        ottla_cluster.isolate(leader)
        ottla_cluster.heal()
    """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
