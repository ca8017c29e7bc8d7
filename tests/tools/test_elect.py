"""Who leads after an election, as told by a broker that hears of it late."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.election import Election
from ottla.tools import elect


@pytest.mark.parametrize(("kind", "before"), [(Election.PREFERRED, 1), (Election.UNCLEAN, -1)])
def test_a_broker_that_hears_late_is_asked_again(monkeypatch: pytest.MonkeyPatch, kind: Election, before: int) -> None:
    leaders = [before, before, 3]

    def read_layout(cluster: object, topics: object) -> Any:
        part = SimpleNamespace(leader=leaders.pop(0) if len(leaders) > 1 else leaders[0], replicas=(3, 1))
        return SimpleNamespace(partitions={("orders", 0): part})

    monkeypatch.setattr(elect, "read_layout", read_layout)
    monkeypatch.setattr(elect, "POLL_S", 0)
    assert elect.read_leaders(object(), kind, [("orders", 0)]) == {("orders", 0): 3}  # type: ignore[arg-type]
    monkeypatch.setattr(elect, "HEARD_S", -1)
    leaders[:] = [before]
    assert elect.read_leaders(object(), kind, [("orders", 0)]) == {("orders", 0): before}  # type: ignore[arg-type]
