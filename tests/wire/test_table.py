"""The protocol page: its rows, and that the kept one says what the handlers serve today."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.handlers import load
from ottla.handlers.call import REGISTRY
from ottla.wire.apis import BY_KEY
from ottla.wire.table import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"


def test_the_kept_page_is_fresh() -> None:
    load()
    handled = {key: registered.versions for key, registered in REGISTRY.items()}
    assert PAGE.read_text(encoding="utf-8") == page(handled), "write docs/protocol.md anew from ottla.wire.table.page"


def test_a_row_per_api() -> None:
    text = page({0: (0, 13), 46: (0, 0)})
    assert f"2 of {len(BY_KEY)} APIs are served" in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert len(rows) == len(BY_KEY)
    assert rows[0] == "| 0 | Produce | 0-13 | 0-13 | 9 | [produce](../src/ottla/wire/messages/produce.py) |"
    assert "| 46 | ListPartitionReassignments | 0 | 0 | 0 | [topics](../src/ottla/wire/messages/topics.py) |" in rows
    assert "| 17 | SaslHandshake |  | 0-1 |  | [auth](../src/ottla/wire/messages/auth.py) |" in rows


def test_a_handler_of_something_undeclared_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="999"):
        page({999: (0, 0)})
