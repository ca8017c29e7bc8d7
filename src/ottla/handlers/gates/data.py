"""Gates for requests that read and write records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ottla.errors import BrokerError, ErrorCode, Hangup
from ottla.handlers.gates.gate import EarlyReply, at_once, extend, guards, list_refusals, sift_list
from ottla.records import batch
from ottla.replica.sessions import EPOCH_FINAL, EPOCH_INITIAL
from ottla.wire.access import Operation, ResourceType
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, ForgottenTopic, PartitionData
from ottla.wire.messages.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.topics import DeleteRecordsRequest
from ottla.wire.messages.transactions import DescribeProducersRequest

if TYPE_CHECKING:
    from ottla.handlers.call import Steps
    from ottla.handlers.finishing import Finish
    from ottla.handlers.gates.gate import Guard, Outcome
    from ottla.replica.sessions import Key
    from ottla.wire.messages.fetch import FetchTopic
    from ottla.wire.messages.produce import TopicProduceData

TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
BATCHES = 3  # the first version of Produce with record batches


@guards(ProduceRequest)
def produce(guard: Guard, request: ProduceRequest) -> Outcome:
    """Runs in one go: the records are in a frame that is only valid for this turn."""
    if guard.call.version >= BATCHES and has_transactions(request):
        name = request.transactional_id
        if name is None or not guard.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            return EarlyReply(refuse_produce(guard, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    kept: list[TopicProduceData] = []
    refused: list[TopicProduceData] = []
    for topic in request.topic_data:
        known = topic.name or find_name(guard, topic.topic_id)
        allowed = known is None or guard.allows_topic(Operation.WRITE, known)
        (kept if allowed else refused).append(topic)
    if not refused:
        return None
    if not kept:
        return EarlyReply(refuse_produce(guard, request, TOPIC_REFUSED))
    request.topic_data = kept
    if request.acks == 0:  # the allowed part is appended; closing the connection reports the rest
        return lambda response: refuse_produce(guard, request, TOPIC_REFUSED)
    refusals = list_refusals(guard, request, refused, TOPIC_REFUSED, of="topic_data", into="responses")
    return extend("responses", at_once(refusals))


def has_transactions(request: ProduceRequest) -> bool:
    return any(
        data.records is not None and batch.is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def refuse_produce(guard: Guard, request: ProduceRequest, code: ErrorCode) -> Any:
    if request.acks == 0:
        raise Hangup("a produce with acks=0 is not allowed")
    return at_once(guard.refuse(request, code))


def find_name(guard: Guard, topic_id: bytes) -> str | None:
    """The name of the topic whose records this id gives access to. In a cluster, replicas come before the metadata
    that names their topic, and go after it: then they are known by themselves."""
    return guard.topic_name(topic_id) or guard.parts.replicas.find_name(topic_id)


@guards(FetchRequest)
def fetch(guard: Guard, request: FetchRequest) -> Steps[Finish | EarlyReply | None]:
    follows = max(request.replica_id, request.replica_state.replica_id) >= 0  # which of the two depends on the version
    member = follows and guard.allows_cluster(Operation.CLUSTER_ACTION)
    denied, unnamed = check_session(guard, request)
    hidden = yield from check_names(guard, denied, unnamed)
    kept: list[FetchTopic] = []
    for topic in request.topics:
        name = topic.topic or find_name(guard, topic.topic_id)
        if member or (not follows and (name is None or guard.allows_topic(Operation.READ, name))):
            kept.append(topic)
            if name is None and not member:
                for one in topic.partitions:
                    unnamed[topic.topic_id, one.partition] = None
                    yield
        else:
            for one in topic.partitions:
                denied[topic.topic or topic.topic_id, one.partition] = None
                yield
        yield
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            denied.pop((forgotten.topic or forgotten.topic_id, index), None)
            unnamed.pop((forgotten.topic_id, index), None)
            yield
    if denied and not kept and request.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL):
        return EarlyReply(FetchResponse(responses=(yield from refuse_fetch(denied))))
    request.topics = kept
    request.forgotten_topics_data = [*request.forgotten_topics_data, *hidden]

    def finish(response: FetchResponse) -> Any:
        session = guard.parts.sessions.find(response.session_id)
        if session is not None and not guard.parts.sessions.note_rights(session, owner_of(guard), denied, unnamed):
            response.session_id = 0
        return add_refusals(response, denied) if denied else response

    return finish


def add_refusals(response: FetchResponse, denied: dict[Key, None]) -> Steps[FetchResponse]:
    response.responses += yield from refuse_fetch(denied)
    return response


def owner_of(guard: Guard) -> tuple[str, str]:
    """The address belongs to it: permissions may be for one address only."""
    return guard.principal, guard.host


def check_session(guard: Guard, request: FetchRequest) -> tuple[dict[Key, None], dict[Key, None]]:
    """The partitions refused before in this session, and those whose topics were unknown. A session belongs to its
    owner: its id alone is not enough to use it."""
    session = guard.parts.sessions.find(request.session_id)
    if session is None:
        return {}, {}
    if session.owner != owner_of(guard):
        if request.session_epoch not in (EPOCH_INITIAL, EPOCH_FINAL):
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        request.session_id = 0  # not theirs, so they must not close it
        return {}, {}
    if request.session_epoch in (EPOCH_INITIAL, EPOCH_FINAL):
        return {}, {}
    return dict(session.denied), dict(session.unnamed)


def check_names(guard: Guard, denied: dict[Key, None], unnamed: dict[Key, None]) -> Steps[list[ForgottenTopic]]:
    """Check the partitions whose topics have become known since. Returns those to remove from the session."""
    hidden = []
    for key in list(unnamed):
        topic_id, index = key
        name = find_name(guard, cast("bytes", topic_id))
        if name is not None:
            del unnamed[key]
            if not guard.allows_topic(Operation.READ, name):
                denied[key] = None
                hidden.append(ForgottenTopic(topic_id=cast("bytes", topic_id), partitions=[index]))
        yield
    return hidden


def refuse_fetch(denied: dict[Key, None]) -> Steps[list[FetchableTopicResponse]]:
    topics: dict[str | bytes, FetchableTopicResponse] = {}
    for topic, index in denied:
        found = topics.get(topic)
        if found is None:
            named = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
            found = topics[topic] = FetchableTopicResponse(**named, partitions=[])
        found.partitions.append(
            PartitionData(partition_index=index, error_code=TOPIC_REFUSED, high_watermark=-1, records=b"")
        )
        yield
    return list(topics.values())


@guards(ListOffsetsRequest)
def list_offsets(guard: Guard, request: ListOffsetsRequest) -> Steps[Finish | None]:
    return sift_list(guard, request, Operation.DESCRIBE)


@guards(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(guard: Guard, request: OffsetForLeaderEpochRequest) -> Steps[Finish | None] | None:
    if guard.allows_cluster(Operation.CLUSTER_ACTION):
        return None
    return sift_list(guard, request, Operation.DESCRIBE, name_of=lambda item: str(item.topic))


@guards(DeleteRecordsRequest)
def delete_records(guard: Guard, request: DeleteRecordsRequest) -> Steps[Finish | None]:
    return sift_list(guard, request, Operation.DELETE)


@guards(DescribeProducersRequest)
def describe_producers(guard: Guard, request: DescribeProducersRequest) -> Steps[Finish | None]:
    return sift_list(guard, request, Operation.READ)
