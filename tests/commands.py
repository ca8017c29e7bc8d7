"""Runs `ottla` commands in forked processes, which saves the imports.

A command spends most of its time importing libraries. So one process imports them once, and forks for every
command. The forked process is the command's own: its streams, environment, signals and exit code.

`run(arguments)` is for tests of what a command does. Tests of how a process starts use `python -m ottla`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMEOUT_S = 180.0
REQUEST_LIMIT = 1 << 20
LIBRARIES = ("confluent_kafka.admin", "ottla.client.cluster", "rich.table", "rich.progress")


class Done(NamedTuple):
    returncode: int
    stdout: bytes
    stderr: bytes


def run(
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Done:
    """Run `ottla ARGUMENTS` to its end."""
    return server().run(arguments, stdin, {**os.environ, **(environment or {})}, timeout_s)


@cache
def server() -> Server:
    """One per test process; it ends with that process."""
    started = Server()
    atexit.register(started.close)
    return started


class Server:
    """The process that forks. It ends when its socket is closed, however the test process ends."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )

    def run(
        self, arguments: Sequence[str], stdin: bytes, environment: Mapping[str, str], timeout_s: float = TIMEOUT_S
    ) -> Done:
        streams = [os.pipe() for _ in range(3)]
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = streams
        request = json.dumps([list(arguments), dict(environment), str(Path.cwd())]).encode()
        size = len(request).to_bytes(4)
        socket.send_fds(self._socket, [size], [their_in, their_out, their_err])
        for begin in range(0, len(request), 65536):
            self._socket.send(request[begin : begin + 65536])
        for descriptor in (their_in, their_out, their_err):
            os.close(descriptor)
        found = [b"", b""]
        threads = [
            threading.Thread(target=write, args=(our_in, stdin)),
            threading.Thread(target=read, args=(our_out, found, 0)),
            threading.Thread(target=read, args=(our_err, found, 1)),
        ]
        for thread in threads:
            thread.start()
        try:
            code = self._wait(arguments, timeout_s)
        finally:
            for thread in threads:
                thread.join(TIMEOUT_S)
        return Done(code, *found)

    def _wait(self, arguments: Sequence[str], timeout_s: float) -> int:
        self._socket.settimeout(timeout_s)
        pid = int(self._socket.recv(32))
        try:
            return int(self._socket.recv(32))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            self._socket.recv(32)
            raise AssertionError(f"`ottla {' '.join(arguments)}` did not end within {timeout_s} s") from None

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def write(descriptor: int, data: bytes) -> None:
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
    except BrokenPipeError:
        pass  # the command ended without reading all of it


def read(descriptor: int, found: list[bytes], index: int) -> None:
    with open(descriptor, "rb") as file:
        found[index] = file.read()


# --- the process that forks ------------------------------------------------------------------------------------------


def serve(channel: socket.socket) -> None:
    """Fork for every request. Returns in the forked process, with its streams and environment set up."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 4, 3)
        if not message:
            os._exit(0)
        size, request = int.from_bytes(message), b""
        while len(request) < size:
            request += channel.recv(REQUEST_LIMIT)
        if (pid := os.fork()) == 0:
            channel.close()
            become(descriptors, *json.loads(request))
            return
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        channel.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(descriptors: list[int], arguments: list[str], environment: dict[str, str], folder: str) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["ottla", *arguments]
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        old = getattr(sys, name)
        setattr(sys, name, os.fdopen(old.fileno(), mode, encoding=old.encoding, errors=old.errors, closefd=False))
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def import_libraries() -> None:
    """Import the tools' libraries, but not the tools themselves: they read the environment when they are imported.

    Some libraries import more when they are used, so a command is run.
    """
    for name in LIBRARIES:
        importlib.import_module(name)
    sys.argv = ["ottla", "topics", "list", "--help"]
    with suppress(SystemExit), open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        runpy.run_module("ottla", run_name="__main__")
    for name in [name for name in sys.modules if name.startswith("ottla.tools")]:
        del sys.modules[name]


if __name__ == "__main__":
    sys.path[0] = ""  # as `python -m ottla` has it
    requests = socket.socket(fileno=int(sys.argv[1]))
    import_libraries()
    serve(requests)
    runpy.run_module("ottla", run_name="__main__")
