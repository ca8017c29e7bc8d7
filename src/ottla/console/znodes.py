"""Read a cluster's znodes: names and data, with size limits. Kazoo runs its own threads."""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

from ottla.client.failure import Failed

TIMEOUT_S: Final = 5.0
CHILDREN_MAX: Final = 500
DATA_MAX: Final = 1 << 16
SECRET: Final = ("/config/users", "/delegation_token")  # password hashes and token keys are hidden


class Node(NamedTuple):
    path: str
    data: str
    version: int
    ephemeral: bool
    size: int
    children: list[str]
    more: int  # children that are not listed


class Tree:
    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self._client: Any = None
        self._lock = threading.Lock()

    def node(self, path: str) -> Node:
        """Blocks on ZooKeeper; call it in a thread."""
        with self._lock:
            data, stat, names = self._read(path)
        hidden = path.startswith(SECRET)
        return Node(
            path,
            "(not shown)" if hidden and data else show_data(data or b""),
            stat.version,
            bool(stat.ephemeralOwner),
            len(data or b""),
            names[:CHILDREN_MAX],
            max(0, len(names) - CHILDREN_MAX),
        )

    def _read(self, path: str) -> tuple[bytes | None, Any, list[str]]:
        from kazoo.exceptions import KazooException, NoNodeError
        from kazoo.handlers.threading import KazooTimeoutError

        is_new = self._client is None
        try:
            client = self._connect()
            data, stat = client.retry(client.get, path)
            return data, stat, sorted(client.retry(client.get_children, path))
        except NoNodeError:
            raise Failed(f"there is no znode {path} any more") from None
        except (KazooException, KazooTimeoutError) as error:
            self._drop()
            if is_new:
                raise Failed(f"ZooKeeper at {self._hosts} does not answer ({type(error).__name__})") from None
        return self._read(path)  # the session may have ended while nobody used it, so try once with a new one

    def _connect(self) -> Any:
        if self._client is None:
            from kazoo.client import KazooClient
            from kazoo.retry import KazooRetry

            retry = KazooRetry(max_tries=2, delay=0.1)
            client = KazooClient(
                self._hosts,
                timeout=TIMEOUT_S,
                read_only=True,
                command_retry=retry,
                connection_retry=KazooRetry(max_tries=1),
            )
            try:
                client.start(timeout=TIMEOUT_S)
            except BaseException:
                client.stop()
                client.close()
                raise
            self._client = client
        return self._client

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()

    def close(self) -> None:
        with self._lock:
            self._drop()


def show_data(data: bytes) -> str:
    import json

    try:
        text = data[:DATA_MAX].decode()
    except UnicodeDecodeError:
        return data[:4096].hex(" ")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text
