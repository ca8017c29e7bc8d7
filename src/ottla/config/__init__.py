"""Configuration: two tables of rows (broker, topic), where their values come from, and what is refused."""

from ottla.config.broker import BrokerConfig, load
from ottla.config.listeners import Listener
from ottla.config.option import ConfigError, Refusals
from ottla.config.sources import parse_environment, parse_properties, parse_settings
from ottla.config.topic import TopicConfig, topic_config

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "Listener",
    "Refusals",
    "TopicConfig",
    "load",
    "parse_environment",
    "parse_properties",
    "parse_settings",
    "topic_config",
]
