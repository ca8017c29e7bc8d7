"""The plugin in a user's project: pytester writes one, runs it and checks the outcome."""

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


def test_clients_are_ready_made(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
    import pytest
    from aiokafka.admin import NewTopic

    def test_confluent_kafka(ottla_admin, ottla_producer, ottla_consumer, ottla_namespace):
        topic = ottla_namespace.topic()
        ottla_producer.produce(topic, b"1")
        assert ottla_producer.flush(30) == 0
        assert topic in ottla_admin.list_topics(timeout=30).topics
        ottla_consumer.subscribe([topic])
        assert ottla_consumer.poll(30).value() == b"1"

    @pytest.mark.anyio
    async def test_aiokafka(anyio_backend, ottla_aio_admin, ottla_aio_producer, ottla_aio_consumer, ottla_namespace):
        topic = ottla_namespace.topic()
        await ottla_aio_admin.create_topics([NewTopic(topic, 1, 1)])
        await ottla_aio_producer.send_and_wait(topic, b"1")
        ottla_aio_consumer.subscribe([topic])
        assert (await ottla_aio_consumer.getone()).value == b"1"

    @pytest.mark.anyio
    async def test_broker_on_the_loop(anyio_backend, ottla_aio_broker):
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(bootstrap_servers=ottla_aio_broker.bootstrap) as producer:
            assert (await producer.send_and_wait("t", b"1")).offset == 0

    @pytest.fixture
    def anyio_backend():
        return "asyncio"

    shared = set()

    @pytest.mark.parametrize("time", [1, 2])
    def test_names(ottla_namespace, ottla_module_namespace, ottla_session_namespace, time):
        shared.update((ottla_module_namespace.topic(), ottla_session_namespace.topic()))
        assert len(shared) == 2
        assert ottla_namespace.topic() not in shared

    @pytest.mark.parametrize("time", [1, 2])
    def test_faults_end_with_the_test(ottla_broker, time):
        assert ottla_broker.pending_faults() == {}
        ottla_broker.fail_next("Produce", 6)
    """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "--ottla-mode", "thread").assert_outcomes(passed=7)


def test_a_package_that_is_missing_is_named(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys; sys.modules['confluent_kafka'] = None")
    pytester.makepyfile("def test_it(ottla_producer): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--ottla-mode", "thread")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*UsageError: ottla_producer needs confluent-kafka: pip install confluent-kafka"])


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_the_report_of_a_failed_test_has_the_log_of_its_brokers(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(
        """
    import pytest, socket

    def hang_up(broker, size):
        host, _, port = broker.bootstrap.partition(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(size.to_bytes(4))
            assert client.recv(1) == b""

    def test_fine(ottla_broker):
        hang_up(ottla_broker, 0x7FFFFFFE)

    def test_wrong(ottla_broker):
        hang_up(ottla_broker, 0x7FFFFFFF)
        assert False
    """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--ottla-mode", mode)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*- Log of the broker at 127.0.0.1:* -*" if mode == "process" else "*Captured log*"])
    result.stdout.fnmatch_lines(["*a frame of 2147483647 bytes*"])
    assert "2147483646" not in result.stdout.str(), "what another test was about"


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_test_that_leaves_the_shared_broker_down_harms_no_other(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(
        HELLO
        + """
    import os
    import signal

    def test_kept(ottla_broker):
        send(ottla_broker, "kept")

    def test_killed(ottla_broker):
        ottla_broker.kill()

    def test_after_a_kill(ottla_broker):
        assert "kept" in send(ottla_broker, "after-a-kill")

    def test_stopped(ottla_broker):
        ottla_broker.stop()

    def test_paused(ottla_broker):
        send(ottla_broker, "after-a-stop")
        ottla_broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        if hasattr(ottla_broker, "pause"):
            ottla_broker.pause()

    def test_ended_by_itself(ottla_broker):
        send(ottla_broker, "after-a-pause")
        if hasattr(ottla_broker, "pid"):
            os.kill(ottla_broker.pid, signal.SIGKILL)
            os.waitid(os.P_PID, ottla_broker.pid, os.WEXITED | os.WNOWAIT)

    def test_last(ottla_broker):
        send(ottla_broker, "last")
    """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "--ottla-mode", mode).assert_outcomes(passed=7)


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


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_broker_with_tls_and_logins(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(
        """
    import asyncio, stat

    import pytest
    from aiokafka import AIOKafkaProducer
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from kafka import KafkaAdminClient

    LOGINS = ["TLS", "CERTIFICATE", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

    @pytest.mark.parametrize("login", LOGINS)
    def test_every_way_in(ottla_tls_broker, login):
        assert AdminClient(ottla_tls_broker.confluent_kafka(login)).list_topics(timeout=60).brokers
        KafkaAdminClient(**ottla_tls_broker.kafka_python(login), bootstrap_timeout_ms=60_000).close()

        async def connect():
            async with AIOKafkaProducer(**ottla_tls_broker.aiokafka(login)) as producer:
                return await producer.client.fetch_all_metadata()

        assert asyncio.run(connect()).brokers()

    def test_a_client_without_a_certificate(ottla_tls_broker):
        settings = ottla_tls_broker.confluent_kafka("TLS")
        settings["bootstrap.servers"] = ottla_tls_broker.bootstrap("CERTIFICATE")
        with pytest.raises(KafkaException):
            AdminClient({**settings, "log_level": 0}).list_topics(timeout=1)

    def test_it_comes_back_where_it_was(ottla_tls_broker):
        before = dict(ottla_tls_broker.addresses)
        ottla_tls_broker.add_user("bob", "bob-secret")
        ottla_tls_broker.broker.kill()
        ottla_tls_broker.broker.start()
        settings = ottla_tls_broker.confluent_kafka("SCRAM-SHA-512")
        settings |= {"sasl.username": "bob", "sasl.password": "bob-secret"}
        assert AdminClient(settings).list_topics(timeout=60).brokers
        assert ottla_tls_broker.addresses == before

    def test_keys_are_for_their_owner_only(ottla_tls_broker):
        assert stat.S_IMODE(ottla_tls_broker.folder.stat().st_mode) == 0o700

    def test_a_login_that_is_none(ottla_tls_broker):
        with pytest.raises(ValueError, match="unknown login KERBEROS: expected one of TLS, CERTIFICATE"):
            ottla_tls_broker.aiokafka("KERBEROS")
    """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--ottla-mode", mode)
    result.assert_outcomes(passed=9)


def test_certificates_need_a_package_that_is_named(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys; sys.modules['cryptography'] = None")
    pytester.makepyfile("def test_it(ottla_tls_broker): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--ottla-mode", "thread")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*UsageError: ottla_tls_broker needs cryptography: pip install cryptography"])
