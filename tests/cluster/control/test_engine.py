"""The queue of the controller's events."""

from ottla.cluster.control import events
from ottla.cluster.control.engine import Queued, Seek


def test_events_without_fields_are_not_the_same() -> None:
    """As tuples they are equal: one of them would be taken for a repetition of the other, and lost."""
    queued = Queued(Seek(), None)
    assert not queued.says_the_same(Queued(events.TopicsChanged(), None))
    assert not Queued(events.BrokersChanged(), None).says_the_same(Queued(events.TopicsChanged(), None))
    assert queued.says_the_same(Queued(Seek(), None))
