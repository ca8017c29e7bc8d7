"""What this broker knows of the cluster: the newest image, its own current config, and their subscribers.

Every broker has one. On one node `standalone.py` publishes each change itself; a member of a cluster publishes what the
controller sends, and the dynamic configs that it reads from the store.
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
    """`config` is the broker's static configuration with dynamic configs applied."""

    def __init__(self, config: BrokerConfig, clock: Clock, *, node_id: int | None = None) -> None:
        self.node_id = config.node_id if node_id is None else node_id
        self.image: Image = EMPTY
        self.config = config
        self.static = config  # as given at start, without dynamic configs
        self.turns = Turns(clock)
        self._subscribers: list[Callable[[Image | None, Image], None]] = []
        self._topic_configs: dict[frozenset[tuple[str, str]], TopicConfig] = {}

    def subscribe(self, callback: Callable[[Image | None, Image], None]) -> None:
        """Call back with the old and the new image after every change, and now if there is an image."""
        self._subscribers.append(callback)
        if self.image is not EMPTY:
            callback(None, self.image)

    def topic_config(self, topic: Topic) -> TopicConfig:
        """A topic's current configuration; the same object until it or the broker's defaults change."""
        overrides = frozenset(topic.configs.items())
        config = self._topic_configs.get(overrides)
        if config is None:
            if len(self._topic_configs) >= TOPIC_CONFIGS_MAX:
                self._topic_configs.clear()
            config = self._topic_configs[overrides] = topic_config(self.config, topic.configs)
        return config

    def publish(self, new: Image) -> None:
        """Replace the image and call the subscribers, in order of subscription."""
        old = None if self.image is EMPTY else self.image
        self.image = new
        if old is None or old.broker_configs is not new.broker_configs:
            own = new.broker_configs.get(str(self.node_id), {})
            self.config = self.static.overlay({**new.broker_configs.get(EVERY_BROKER, {}), **own})
            self._topic_configs.clear()
        for callback in self._subscribers:
            callback(old, new)
