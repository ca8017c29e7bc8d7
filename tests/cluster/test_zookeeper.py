"""The metadata store on a real ZooKeeper: the port's contract, and what holds when server or session is lost."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from typing import TYPE_CHECKING

import pytest
from cluster.refusals import REFUSALS
from cluster.zookeepers import SESSION_MS, SHORT_MS, WAIT_S, expire, opened, run
from waiting import until

from ottla.cluster import kazoo_thread, znodes, zookeeper
from ottla.cluster.metadata_store import (
    Create,
    Delete,
    Event,
    NoNode,
    Op,
    SessionEvent,
    Set,
    StoreError,
    Unavailable,
    UnknownOutcome,
)
from ottla.cluster.zookeeper import Tls, ZooKeeper, ZooKeeperSettings, settings_of, translate_error
from ottla.config import load
from ottla.testing.links import Links
from ottla.testing.ports import free_ports
from ottla.testing.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[ZooKeeperServer]:
    """For tests that stop it."""
    with ZooKeeperServer() as server:
        yield server


def test_a_node_has_data_a_version_and_children(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store:
            assert await metadata_store.create("/a", b"one") == "/a"
            await metadata_store.create("/a/y")
            await metadata_store.create("/a/x")
            await metadata_store.create("/ab")
            assert (await metadata_store.get("/a")).data == b"one"
            assert (await metadata_store.get("/a")).stat.version == 0
            assert (await metadata_store.get("/a/x")).data == b""
            assert (await metadata_store.set("/a", b"two")).version == 1
            assert (await metadata_store.set("/a", b"three", version=1)).version == 2
            assert await metadata_store.children("/a") == ["x", "y"]
            assert await metadata_store.children("/") == ["a", "ab"]
            assert set(await metadata_store.tree("/a")) == {"/a", "/a/x", "/a/y"}
            assert set(await metadata_store.tree("/")) == {"/", "/a", "/a/x", "/a/y", "/ab"}
            assert set(await metadata_store.tree("/nothing")) == set()
            await metadata_store.delete("/a/x")
            assert await metadata_store.children("/a") == ["y"]
            assert await metadata_store.multi([]) == []
            with pytest.raises(NoNode):
                await metadata_store.get("/nothing")

    run(story())


@pytest.mark.parametrize(("op", "error"), REFUSALS)
def test_a_refusal_leaves_everything_as_it_was(server: ZooKeeperServer, op: Op, error: type[StoreError]) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store:
            await metadata_store.multi([Create("/a"), Create("/a/b")])
            before = await metadata_store.tree("/")
            with pytest.raises(error, match=op.path) as refused:
                await metadata_store.multi([Create("/c"), Set("/a", b"changed"), op, Create("/d")])
            assert refused.value.path == op.path
            assert await metadata_store.tree("/") == before

    run(story())


def test_ephemeral_and_sequential_nodes(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store:
            await metadata_store.create("/q")
            async with opened(server, metadata_store._root) as other:
                first = await other.create("/q/n_", b"x", ephemeral=True, sequential=True)
                assert first == "/q/n_0000000000"
                stat = (await metadata_store.get(first)).stat
                assert stat.ephemeral
                assert stat.owner == other.session != metadata_store.session
                assert stat.czxid > (await metadata_store.get("/q")).stat.czxid
                paths = await metadata_store.multi([Create("/q/n_", sequential=True), Create("/r"), Delete("/r")])
                assert paths == ["/q/n_0000000001", "/r", "/r"]
            assert await metadata_store.children("/q") == ["n_0000000001"], "the session was closed"

    run(story())


def test_watches_tell_of_the_node_and_of_its_children_until_cancelled(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store:
            seen: list[str] = []
            cancel = metadata_store.watch("/a", lambda event: seen.append(event.kind))

            async def after(change: Coroutine[None, None, object], kind: str) -> None:
                before = len(seen)
                await change
                await until(lambda: len(seen) > before)
                assert seen[before:] == [kind]

            await after(metadata_store.create("/a"), "created")
            await after(metadata_store.set("/a", b"x"), "changed")
            await after(metadata_store.set("/a", b"y"), "changed")
            await after(metadata_store.create("/a/b"), "children")
            await after(metadata_store.create("/a/c"), "children")
            await after(metadata_store.multi([Delete("/a/b"), Delete("/a/c")]), "children")
            await after(metadata_store.delete("/a"), "deleted")
            await after(metadata_store.create("/a"), "created")
            await after(metadata_store.create("/a/d"), "children")
            cancel()
            cancel()
            await metadata_store.set("/a", b"z")
            await metadata_store.get("/a")
            assert len(seen) == 9

    run(story())


def test_whoever_reads_after_an_event_misses_nothing(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store, opened(server, metadata_store._root) as writer:
            await metadata_store.create("/a", b"0")
            changed = asyncio.Event()
            changed.set()
            metadata_store.watch("/a", lambda event: changed.set())

            async def write() -> None:
                for number in range(1, 301):
                    await writer.set("/a", b"%d" % number)

            writing = asyncio.ensure_future(write())
            data = b""
            while data != b"300":
                await asyncio.wait_for(changed.wait(), WAIT_S)
                changed.clear()
                data = (await metadata_store.get("/a")).data
            await writing

    run(story())


def test_one_listener_that_fails_keeps_nothing_from_the_others(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store:
            seen: list[Event] = []

            def fail(event: Event) -> None:
                raise RuntimeError("a bug")

            metadata_store.watch("/a", fail)
            metadata_store.watch("/a", seen.append)
            await metadata_store.create("/a")
            await until(lambda: seen)
            await metadata_store.set("/a", b"x")
            await until(lambda: len(seen) == 2)

    run(story())


def test_calls_are_carried_out_in_order_however_many_they_are(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store:
            await metadata_store.create("/a")
            await asyncio.gather(*(metadata_store.set("/a", b"%d" % number) for number in range(1000)))
            assert (await metadata_store.get("/a")).data == b"999"
            assert (await metadata_store.get("/a")).stat.version == 1000

    run(story())


def test_what_is_too_large_is_refused_and_the_connection_stays(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store:
            events: list[SessionEvent] = []
            metadata_store.subscribe(events.append)
            await metadata_store.create("/large", bytes(990_000))
            with pytest.raises(Unavailable, match="more than ZooKeeper takes"):
                await metadata_store.create("/larger", bytes(1_100_000))
            assert len((await metadata_store.get("/large")).data) == 990_000
            assert not events

    run(story())


def test_an_expired_session_is_lost_and_a_new_one_begins(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store:
            events: list[SessionEvent] = []
            seen: list[Event] = []
            await metadata_store.create("/me", ephemeral=True)
            metadata_store.subscribe(events.append)
            metadata_store.watch("/me", seen.append)
            session = metadata_store.session
            await asyncio.to_thread(expire, metadata_store, server)
            await until(lambda: SessionEvent.LOST in events and metadata_store.connected)
            assert events[-2:] == [SessionEvent.LOST, SessionEvent.CONNECTED]
            assert metadata_store.session not in (0, session)
            with pytest.raises(NoNode):
                await metadata_store.get("/me")
            assert seen[-1] == Event("missed", "/me")
            seen.clear()
            await metadata_store.create("/me", ephemeral=True)
            await until(lambda: seen)
            assert seen == [Event("created", "/me")], "the watch holds in the new session"

    run(story())


def test_a_restarted_server_suspends_the_session_and_keeps_it(own_server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(own_server) as metadata_store:
            events: list[SessionEvent] = []
            seen: list[Event] = []
            await metadata_store.create("/me", ephemeral=True)
            metadata_store.subscribe(events.append)
            metadata_store.watch("/me", seen.append)
            session = metadata_store.session
            await asyncio.to_thread(own_server.kill)
            await until(lambda: events)
            assert events == [SessionEvent.SUSPENDED]
            assert (metadata_store.connected, metadata_store.session) == (False, session)
            late = metadata_store.watch("/late", seen.append)
            with pytest.raises(Unavailable):
                await metadata_store.get("/me")
            with pytest.raises(Unavailable):
                await metadata_store.multi([Set("/me", b"x")])
            await asyncio.to_thread(own_server.start)
            await until(lambda: len(events) == 2)
            assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
            assert metadata_store.session == (await metadata_store.get("/me")).stat.owner == session
            assert sorted(seen) == [Event("missed", "/late"), Event("missed", "/me")]
            await metadata_store.set("/me", b"x")
            await until(lambda: len(seen) == 3)
            assert seen[2] == Event("changed", "/me")
            late()

    run(story())


def test_no_change_is_missed_while_the_server_comes_and_goes(own_server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(own_server) as metadata_store, opened(own_server, metadata_store._root) as writer:
            await metadata_store.create("/a", b"0")
            changed = asyncio.Event()
            metadata_store.watch("/a", lambda event: changed.set())
            stop = False

            async def write() -> int:
                number = 0
                while not stop:
                    number += 1
                    try:
                        await writer.set("/a", b"%d" % number)
                    except Unavailable:
                        await until(lambda: writer.connected)
                async with asyncio.timeout(WAIT_S):
                    while True:
                        try:
                            return (await writer.set("/a", b"last")).version
                        except Unavailable:
                            await until(lambda: writer.connected)

            writing = asyncio.ensure_future(write())
            await until(changed.is_set)
            for _ in range(2):
                await asyncio.to_thread(own_server.restart)
            stop = True
            data = b""
            while data != b"last":
                await asyncio.wait_for(changed.wait(), WAIT_S)
                changed.clear()
                try:
                    data = (await metadata_store.get("/a")).data
                except Unavailable:  # the watch fires when the connection is back
                    continue
            await writing

    run(story())


def test_a_write_without_an_answer_may_have_happened(own_server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(own_server, session_ms=SHORT_MS, in_flight_max=2) as metadata_store:
            await metadata_store.create("/a")
            own_server.pause()
            writes = [asyncio.ensure_future(metadata_store.set("/a", b"%d" % number)) for number in range(4)]
            results = await asyncio.gather(*writes, return_exceptions=True)
            # Two were sent; the others were still queued, so they cannot have been executed.
            assert [type(result) for result in results] == [UnknownOutcome, UnknownOutcome, Unavailable, Unavailable]
            own_server.resume()
            await until(lambda: metadata_store.connected)
            assert (await metadata_store.get("/a")).data in (b"", b"0", b"1")

    run(story())


def test_a_client_that_was_cut_off_finds_its_session_gone(server: ZooKeeperServer) -> None:
    async def story(links: Links) -> None:
        port = links.open("store", server.port, source="me")
        root = f"/test-{secrets.token_hex(8)}"
        metadata_store = ZooKeeper(ZooKeeperSettings(f"127.0.0.1:{port}{root}", session_timeout_ms=SHORT_MS))
        await metadata_store.open()
        events: list[SessionEvent] = []
        metadata_store.subscribe(events.append)
        async with opened(server, root) as other:
            await metadata_store.create("/me", ephemeral=True)
            gone = asyncio.Event()
            other.watch("/me", lambda event: gone.set())
            await asyncio.to_thread(links.cut, [("me", "store"), ("store", "me")])
            writing = asyncio.ensure_future(metadata_store.set("/me", b"x"))
            await asyncio.wait_for(gone.wait(), WAIT_S)
            with pytest.raises(UnknownOutcome):
                await writing
            assert events == [SessionEvent.SUSPENDED], "the server knows that the session is over, the client not yet"
            await asyncio.to_thread(links.heal)
            await until(lambda: metadata_store.connected)
            assert events == [SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.CONNECTED]
            with pytest.raises(NoNode):
                await metadata_store.get("/me")
        await metadata_store.close()

    with Links(dict) as links:
        run(story(links))


def test_a_client_whose_thread_ends_begins_again(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(zookeeper, "REVIVE_S", 0.01)

    def fail(timeout: float) -> None:
        del metadata_store._client._connection._read_socket
        raise RuntimeError("a bug in kazoo")

    async def story() -> None:
        nonlocal metadata_store
        async with opened(server) as metadata_store:
            events: list[SessionEvent] = []
            metadata_store.subscribe(events.append)
            metadata_store._client._connection._read_socket = fail
            with pytest.raises(UnknownOutcome):
                await metadata_store.get("/")
            await until(lambda: metadata_store.connected)
            assert events == [SessionEvent.LOST, SessionEvent.CONNECTED]
            await metadata_store.create("/a")
        assert "restarting it" in caplog.text

    metadata_store: ZooKeeper
    run(story())


def test_no_server_is_one_clear_line() -> None:
    async def story() -> None:
        metadata_store = ZooKeeper(ZooKeeperSettings("127.0.0.1:1", connection_timeout_ms=200))
        with pytest.raises(Unavailable, match=r"no ZooKeeper answers at 127\.0\.0\.1:1"):
            await metadata_store.open()
        with pytest.raises(Unavailable):
            await metadata_store.get("/")
        await metadata_store.close()

    run(story())


def test_any_of_several_servers_will_do(server: ZooKeeperServer) -> None:
    async def story() -> None:
        metadata_store = ZooKeeper(ZooKeeperSettings(f"127.0.0.1:1,{server.address}", session_timeout_ms=SESSION_MS))
        await metadata_store.open()
        assert "zookeeper" in await metadata_store.children("/")
        await metadata_store.close()

    run(story())


def test_a_closed_store_answers_no_more(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server) as metadata_store:
            pass
        assert (metadata_store.connected, metadata_store.session) == (False, 0)
        for call in (metadata_store.get("/"), metadata_store.create("/a"), metadata_store.tree("/")):
            with pytest.raises(Unavailable):
                await call
        await metadata_store.close()

    run(story())


def test_a_silent_server_is_not_waited_for_to_close(
    own_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kazoo_thread, "FAREWELL_S", 0.1)

    async def story() -> None:
        async with opened(own_server) as metadata_store:
            own_server.pause()
            waiting = asyncio.ensure_future(metadata_store.get("/"))
            await asyncio.sleep(0)
            await asyncio.wait_for(
                metadata_store.close(), SESSION_MS / 1000 / 3
            )  # without an answer kazoo takes two thirds
            with pytest.raises(UnknownOutcome):
                await waiting

    run(story())


def test_nodes_belong_to_who_has_the_password(server: ZooKeeperServer) -> None:
    async def story() -> None:
        async with opened(server, credentials="kafka:secret", protect=True) as metadata_store:
            await metadata_store.multi([Create(path) for path in znodes.PARENTS])
            await metadata_store.create(znodes.topic_config_path("T"), b"open")
            await metadata_store.create(znodes.broker_config_path("1"), b"password=x")
            async with opened(server, metadata_store._root) as stranger:
                assert (await stranger.get(znodes.topic_config_path("T"))).data == b"open"
                for refused in (
                    stranger.set(znodes.topic_config_path("T"), b"changed"),
                    stranger.create(znodes.topic_config_path("U")),
                    stranger.get(znodes.broker_config_path("1")),
                    stranger.create("/new"),
                ):
                    with pytest.raises(Unavailable, match="NoAuth"):
                        await refused
                await stranger.create(znodes.consumer_path("G"))
                with pytest.raises(Unavailable, match="NoAuth"):
                    await stranger.tree("/")
            async with opened(server, metadata_store._root, credentials="kafka:secret", protect=True) as friend:
                assert (await friend.set(znodes.topic_config_path("T"), b"changed")).version == 1
                assert znodes.broker_config_path("1") in await friend.tree("/")

    run(story())


def test_tls_needs_whom_to_trust(tmp_path: Path) -> None:
    """The certificate is self-signed: a client that trusts it can connect, another one cannot."""
    store, trusted = tmp_path / "server.p12", tmp_path / "trusted.pem"
    keytool = ["keytool", "-keystore", str(store), "-storepass", "secret", "-alias", "zk"]
    name = ["-dname", "CN=localhost", "-ext", "san=dns:localhost,ip:127.0.0.1"]
    subprocess.run([*keytool, "-genkeypair", "-keyalg", "EC", *name], check=True, capture_output=True)
    subprocess.run([*keytool, "-exportcert", "-rfc", "-file", str(trusted)], check=True, capture_output=True)
    (port,) = free_ports(1)
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(store),
        "ssl.keyStore.password": "secret",
        "ssl.clientAuth": "none",
    }

    async def story() -> None:
        options = {
            "zookeeper.connect": f"127.0.0.1:{port}/secure",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(trusted),
        }
        metadata_store = ZooKeeper(settings_of(load(options)))
        await metadata_store.open()
        await metadata_store.create("/a", b"x" * 100_000)
        assert (await metadata_store.get("/a")).data == b"x" * 100_000
        await metadata_store.close()
        del options["zookeeper.ssl.truststore.location"]
        stranger = ZooKeeper(settings_of(load({**options, "zookeeper.connection.timeout.ms": "300"})))
        with pytest.raises(Unavailable, match="no ZooKeeper answers"):
            await stranger.open()

    with ZooKeeperServer(settings=settings):
        run(story())


def test_what_the_options_say() -> None:
    options = {
        "zookeeper.connect": "a:1,b:2/c",
        "zookeeper.session.timeout.ms": "7000",
        "zookeeper.set.acl": "true",
        "ottla.zookeeper.credentials": "user:password",
    }
    said = settings_of(load(options))
    assert said == ZooKeeperSettings("a:1,b:2/c", 7000, 7000, 100, "user:password", protect=True, tls=None)
    secure = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": "me.pem",
        "zookeeper.ssl.keystore.password": "secret",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
    }
    assert settings_of(load({**options, **secure})).tls == Tls(None, "me.pem", "secret", check_name=False)


def test_an_error_of_no_known_kind_names_itself() -> None:
    error = translate_error(ValueError("odd"), "/a")
    assert type(error) is Unavailable
    assert str(error) == "/a: ValueError odd"


def test_two_thousand_partitions_are_read_with_few_calls(server: ZooKeeperServer) -> None:
    """A leaf costs one call, any other node two: the minimum."""

    async def story() -> None:
        async with opened(server) as metadata_store:
            await metadata_store.multi([Create(path) for path in ("/t", "/t/p")])
            for start in range(0, 2000, 500):
                paths = [f"/t/p/{index}" for index in range(start, start + 500)]
                await metadata_store.multi([Create(path) for path in paths])
                await metadata_store.multi([Create(f"{path}/state", b"x" * 70) for path in paths])
            calls = 0
            begin = metadata_store._call

            def counted(path: str, send: Callable[[], object]) -> asyncio.Future[object]:
                nonlocal calls
                calls += 1
                return begin(path, send)

            metadata_store._call = counted  # type: ignore[method-assign]
            assert len(await metadata_store.tree("/t")) == 4002
            assert calls == 2 * 2002 + 2000

    run(story())
