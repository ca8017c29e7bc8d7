"""Every API that a broker serves has a gate, or is open to all on purpose."""

from __future__ import annotations

from ottla import handlers
from ottla.handlers import gates
from ottla.handlers.call import REGISTRY
from ottla.handlers.gates.gate import GATES, UNGUARDED
from ottla.wire import apis


def test_every_served_api_has_a_gate_or_is_open_on_purpose() -> None:
    handlers.load()
    gates.load()
    open_to_all = sorted(f"{key} {apis.BY_KEY[key].name}" for key in REGISTRY.keys() - GATES.keys() - UNGUARDED)
    assert not open_to_all, f"write a gate in handlers/gates/, or say in UNGUARDED that it needs none: {open_to_all}"
    assert not UNGUARDED & GATES.keys(), "it has a gate, so it is not open to all"
    assert UNGUARDED | GATES.keys() <= REGISTRY.keys(), "nothing is served there"
