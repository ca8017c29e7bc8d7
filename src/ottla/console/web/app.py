"""The web application: pages behind the guard, served by uvicorn until the process is stopped."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from fastapi import FastAPI
from nicegui import ui

from ottla.console.web.guard import LOOPBACK, ConsoleKeys, Guard
from ottla.console.web.pages import (
    access,
    audit,
    brokers,
    group,
    groups,
    messages,
    overview,
    queries,
    reassignment,
    topic,
    topics,
    transactions,
    zookeeper,
)

if TYPE_CHECKING:
    from ottla.console.console import Console, Options

PAGES = (
    overview,
    brokers,
    topics,
    topic,
    messages,
    groups,
    group,
    reassignment,
    queries,
    transactions,
    access,
    zookeeper,
    audit,
)
WEBSOCKET_MAX = 1 << 20
EVERYWHERE = ("0.0.0.0", "::", "")  # nosec B104 # for comparison, not to listen on


def application(console: Console) -> Guard:
    for page in PAGES:
        page.add(console)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        app,
        title="Ottla",
        favicon=ICON,
        dark=None,
        reconnect_timeout=10.0,
        show_welcome_message=False,
        binding_refresh_interval=None,
    )
    options = console.options
    keys = ConsoleKeys(options.token, options.user, options.password)
    return Guard(app, keys, names(options), any_address=options.host in EVERYWHERE and keys.needed)


ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#2f6fde"/>'
    '<circle cx="16" cy="16" r="8" fill="none" stroke="#fff" stroke-width="4"/></svg>'
)


def names(options: Options) -> set[str]:
    """Host names that a browser may use for the console."""
    found = {*LOOPBACK, *options.hosts, options.host}
    if options.host not in LOOPBACK:
        found |= {socket.gethostname(), socket.getfqdn()}
    return found
