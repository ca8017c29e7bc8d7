"""Options: one row each, in tables for brokers, topics, groups and client metrics.

option.py     the row type; broker.py, topic.py, group.py, client_metrics.py: the tables
others.py     Kafka's options that Ottla does not implement: accepted with a notice, or refused
sources.py    properties files, environment, --set; listeners.py: the syntax of listeners
describe.py   options as DescribeConfigs shows them; manual.py: docs/options.md

All code reads the rows. Changing options at runtime is in `cluster/alterations.py`.
"""

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
