"""Which names a topic may have.

ASCII letters, digits, `.`, `_` and `-`, at most 249 of them, since the name becomes part of a folder name. Metrics turn
dots into underscores, so two names that differ only there collide and the second is rejected.
"""

from __future__ import annotations

from ottla.errors import BrokerError, ErrorCode

LENGTH_MAX = 249
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
# The folder of a KRaft quorum's log: a topic of this name would be mistaken for it.
RESERVED = "__cluster_metadata"
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that no topic may have."""
    if not name:
        raise _name_error("the empty string is not allowed")
    if name in (".", ".."):
        raise _name_error(f"'{name}' is not allowed")
    if len(name) > LENGTH_MAX:
        raise _name_error(f"the length of '{name}' is longer than the max allowed length {LENGTH_MAX}")
    if not _ALLOWED.issuperset(name):
        rule = "characters other than ASCII alphanumerics, '.', '_' and '-'"
        raise _name_error(f"'{name}' contains one or more {rule}")


def is_internal(name: str) -> bool:
    """Whether the topic holds the broker's own state."""
    return name in INTERNAL


def collides(name: str) -> bool:
    """Whether another name could have the same metrics."""
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Equal for two names that would share their metrics."""
    return name.replace(".", "_")


def _name_error(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
