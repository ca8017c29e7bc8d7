"""The process of `ottla console`: binds the port, watches the cluster and serves the pages until a signal."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Final

from ottla.client.failure import Failed
from ottla.console.console import Console

if TYPE_CHECKING:
    import uvicorn

    from ottla.console.console import Options


SWITCH_S: Final = 0.001  # so that pages wait less for the watching threads


def serve(options: Options, *, until_eof: bool = False) -> int:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))  # a parent may have blocked them
    check(options)
    sys.setswitchinterval(SWITCH_S)
    listener = bind(options)
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    console = Console(options)
    console.start()
    try:
        import uvicorn

        from ottla.console.web.app import WEBSOCKET_MAX, application

        config = uvicorn.Config(
            application(console),
            log_level="warning",
            access_log=False,
            ws_max_size=WEBSOCKET_MAX,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        announce(options, listener.getsockname()[1])
        server = uvicorn.Server(config)
        if until_eof:
            threading.Thread(target=wait_for_eof, args=(server,), name="console-eof", daemon=True).start()
        server.run(sockets=[listener])
    finally:
        console.close()
        listener.close()
    return 0


def check(options: Options) -> None:
    """Reject options that would let anybody in."""
    if not loopback(options.host) and not options.token and not options.user:
        raise Failed(
            f"--listen {options.host}: anyone who can reach this address could use the console. "
            "Give --token-file, or --user and --password-file; or listen on 127.0.0.1"
        )
    if (options.user is None) != (options.password is None):
        raise Failed("--user and --password-file must be given together")


def loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind(options: Options) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        where = f"{options.host}:{options.port}"
        raise Failed(f"--listen {where}: {error.strerror or error}; choose another, or port 0 for a free one") from None
    listener.set_inheritable(False)
    return listener


def address(options: Options, port: int) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"http://{host}:{port}"


def announce(options: Options, port: int) -> None:
    may = "changes allowed" if options.allow_changes else "read-only; --allow-changes allows changes"
    print(f"Ottla console: {address(options, port)}  (watches {options.bootstrap}; {may})", flush=True)


def wait_for_eof(server: uvicorn.Server) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    server.should_exit = True
