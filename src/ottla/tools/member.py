"""`ottla consume --group`: a member of a consumer group that commits what it has printed.

The group assigns the partitions and can reassign them at any time. Printed records are committed before the next poll,
so nothing is lost, and only a crash in between prints records twice. Without --follow, the member leaves when it has
read each of its partitions up to the offset where it ended when it was assigned.
"""

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ottla.tools.output import warn
from ottla.tools.reader import take_batch, watermarks
from ottla.tools.session import explain

# The group rebalanced while we printed: the new owners of the partitions read those records again.
OVERTAKEN = {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH}
OVERTAKEN |= {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.FENCED_MEMBER_EPOCH, KafkaError._ASSIGNMENT_LOST}


class GroupMember:
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._joined = False
        self._ends: dict[int, int] = {}  # end offset of each assigned partition that is not read to its end
        consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    @property
    def pending(self) -> bool:
        return not self._joined or bool(self._ends)

    def batch(self, size_max: int, *, follow: bool) -> list[Message]:
        """Records that have arrived, possibly none."""
        taken: list[Message] = []
        for index, offset, message in take_batch(self._consumer, size_max):
            if message is None or offset >= self._ends.get(index, 0) - 1:
                self._ends.pop(index, None)
            if message is not None:
                taken.append(message)
        return taken

    def note_printed(self, batch: Sequence[Message]) -> None:
        done = {message.partition() or 0: message.offset() or 0 for message in batch}
        if not done:
            return
        parts = [TopicPartition(self._topic, index, offset + 1) for index, offset in done.items()]
        try:
            answers = self._consumer.commit(offsets=parts, asynchronous=False) or []
            trouble = [KafkaException(part.error) for part in answers if part.error]
        except KafkaException as refused:
            trouble = [refused]
        for error in trouble:
            if error.args[0].code() not in OVERTAKEN:
                raise error
            warn(f"not committed, other members will read the records again: {explain(error)}")

    def _on_assign(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        self._joined = True
        for part in parts:
            low, high = watermarks(consumer, part.topic, part.partition)
            if high > low:  # nothing to wait for in an empty one
                self._ends[part.partition] = high

    def _on_revoke(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        for part in parts:
            self._ends.pop(part.partition, None)
