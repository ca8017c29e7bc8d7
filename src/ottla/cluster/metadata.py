"""What this broker knows of the cluster: the newest image, its own present options, and who subscribes to them.

Every broker has one. On one node `standalone.py` publishes each change itself; a member of a cluster publishes what the
controller tells it and what it reads of options in the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.image import EMPTY, EVERY_BROKER, Image, Topic
from ottla.cluster.turns import Turns
from ottla.config import BrokerConfig, TopicConfig, topic_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock

TOPIC_CONFIGS_MAX = 1000  # sets of overrides whose configuration is remembered


class Metadata:
    """`config` is the broker's configuration with what was set while running laid over it."""

    def __init__(self, config: BrokerConfig, clock: Clock, *, node_id: int | None = None) -> None:
        self.node_id = config.node_id if node_id is None else node_id
        self.image: Image = EMPTY
        self.config = config
        self.static = config  # as given at start, without what was set while running
        self.turns = Turns(clock)
        self._subscribers: list[Callable[[Image | None, Image], None]] = []
        self._topic_configs: dict[frozenset[tuple[str, str]], TopicConfig] = {}

    def subscribe(self, callback: Callable[[Image | None, Image], None]) -> None:
        """Be called with the old and the new image after every change, and now if there is one."""
        self._subscribers.append(callback)
        if self.image is not EMPTY:
            callback(None, self.image)

    def topic_config(self, topic: Topic) -> TopicConfig:
        """A topic's configuration as of now; the same object until it or the broker's defaults change."""
        overrides = frozenset(topic.configs.items())
        config = self._topic_configs.get(overrides)
        if config is None:
            if len(self._topic_configs) >= TOPIC_CONFIGS_MAX:
                self._topic_configs.clear()
            config = self._topic_configs[overrides] = topic_config(self.config, topic.configs)
        return config

    def publish(self, new: Image) -> None:
        """Replace the image and tell the subscribers, in the order in which they came."""
        old = None if self.image is EMPTY else self.image
        self.image = new
        if old is None or old.broker_configs is not new.broker_configs:
            own = new.broker_configs.get(str(self.node_id), {})
            self.config = self.static.overlay({**new.broker_configs.get(EVERY_BROKER, {}), **own})
            self._topic_configs.clear()
        for callback in self._subscribers:
            callback(old, new)
