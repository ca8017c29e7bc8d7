"""The quota of one request that creates or deletes partitions, topic by topic (KIP-599).

Newer versions of a request are strict: while the client is over its quota, a topic is refused and not counted. Older
versions do not know that error: everything is done, and the client is throttled afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import BrokerError, ErrorCode
from ottla.quota.entity import MUTATION
from ottla.quota.quotas import Throttle

if TYPE_CHECKING:
    from ottla.quota.limits import Limit
    from ottla.quota.quotas import Quotas

# CreateTopics, DeleteTopics, CreatePartitions; and Metadata, which creates topics by Kafka's newest CreateTopics.
STRICT_SINCE: Final = {19: 6, 20: 5, 37: 3, 3: 0}


def mutations_of(quotas: Quotas, who: tuple[str, str], key: int, version: int) -> Mutations | None:
    """The quota of a request of this API and version; None if the client has none."""
    limit = quotas.limits.find(MUTATION, *who)
    return None if limit is None else Mutations(quotas, limit, strict=version >= STRICT_SINCE[key])


class Mutations:
    def __init__(self, quotas: Quotas, limit: Limit, *, strict: bool) -> None:
        self._quotas = quotas
        self._limit = limit
        self._strict = strict
        self.throttle: Throttle | None = None

    def charge(self, partitions: int, now_ms: int) -> None:
        """Count partitions that are created or deleted. BrokerError if the quota does not allow them now."""
        bucket, limit = self._quotas.bucket(self._limit.owner, now_ms), self._limit
        if not self._strict:
            bucket.record(partitions, limit.value, now_ms)
        throttle_ms = bucket.throttle_ms(limit.value, now_ms)
        if throttle_ms > 0:
            self.throttle = Throttle(throttle_ms, MUTATION, limit)
            if self._strict:
                raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        elif self._strict:
            bucket.record(partitions, limit.value, now_ms)
