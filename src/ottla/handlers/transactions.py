"""Producer ids and transactions: InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26),
WriteTxnMarkers (27), TxnOffsetCommit (28).

`wire/messages/transactions.py` lists what each version added. Two things matter here: before a certain version of each
API a fenced producer gets INVALID_PRODUCER_EPOCH, because PRODUCER_FENCED did not exist; and from EndTxn 5 and
TxnOffsetCommit 5 on clients use the newer protocol, in which partitions are not added explicitly.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.coord.groups.commits import refuse_in_transaction
from ottla.coord.transactions.machine import EPOCH_PER_TRANSACTION, NEEDS_ID, ProducerReply
from ottla.coord.transactions.markers import Marker
from ottla.coord.transactions.transaction import FOR_EVER_MS
from ottla.errors import BrokerError, ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.commits import find_missing, join_answers, portions
from ottla.handlers.groups import caller_of
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import TypeAlias

    from ottla.coord.machine import Decision
    from ottla.coord.transactions.machine import TransactionMachine
    from ottla.coord.transactions.transaction import Partitions
    from ottla.handlers.call import Steps
    from ottla.handlers.groups import Answer
    from ottla.wire.messages.transactions import AddPartitionsToTxnTopic, WritableTxnMarker

    # The machine, a new producer id if it is known to be needed, the token and the time.
    Operation: TypeAlias = Callable[[TransactionMachine, int | None, int, int], Decision]

NEWER_END = 5  # EndTxn raises the epoch from this version on
NEWER_COMMIT = 5  # TxnOffsetCommit adds the group to the transaction from this version on
ABORTABLE_COMMIT = 4  # TxnOffsetCommit knows TRANSACTION_ABORTABLE from this version on
NO_PRODUCER = (-1, -1)


@handles(InitProducerIdRequest)
async def init_producer_id(parts: Parts, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    name = request.transactional_id
    asked = (request.producer_id, request.producer_epoch)
    if name == "" or (asked[0] == -1) != (asked[1] == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    if name is None:
        try:
            return InitProducerIdResponse(error_code=0, producer_id=await parts.producer_ids.take(), producer_epoch=0)
        except BrokerError as error:
            return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    if request.enable_2pc and not parts.config.transaction_two_phase_commit_enable:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    if request.keep_prepared_txn and not request.enable_2pc:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    if not request.enable_2pc and request.transaction_timeout_ms > parts.config.transaction_max_timeout_ms:
        code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    try:
        await parts.transactions.ensure()
    except BrokerError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    timeout_ms = FOR_EVER_MS if request.enable_2pc else request.transaction_timeout_ms
    expected = None if asked == NO_PRODUCER else asked
    answer = run_with_id(
        parts,
        name,
        lambda machine, fresh, token, now_ms: machine.init(
            name, timeout_ms, expected, fresh, token, now_ms, keep_prepared=request.keep_prepared_txn
        ),
    )
    reply = answer if isinstance(answer, ProducerReply) else await answer
    return InitProducerIdResponse(
        error_code=translate_code(reply.code, call, 4),
        producer_id=reply.producer_id,
        producer_epoch=reply.epoch,
        ongoing_txn_producer_id=reply.ongoing_id,
        ongoing_txn_producer_epoch=reply.ongoing_epoch,
    )


def run_with_id(parts: Parts, name: str, operation: Operation) -> ProducerReply | Coroutine[None, None, ProducerReply]:
    """Run an operation that may need a new producer id, which is only allocated then. Mostly it replies at once."""
    try:
        reply = attempt(parts, name, operation, None)
    except BrokerError as error:
        return ProducerReply(error.code)
    return reply if isinstance(reply, ProducerReply) else go_on(parts, name, operation, reply)


async def go_on(parts: Parts, name: str, operation: Operation, reply: Any) -> ProducerReply:
    """Wait for the first reply, and fetch an id if that is what it asks for."""
    try:
        reply = await settle(reply)
        if reply is NEEDS_ID:
            reply = await settle(attempt(parts, name, operation, await parts.producer_ids.take()))
    except BrokerError as error:
        return ProducerReply(error.code)
    assert isinstance(reply, ProducerReply)
    return reply


def attempt(parts: Parts, name: str, operation: Operation, fresh: int | None) -> Any:
    """The reply, or a Future of it."""
    return parts.transactions.run(name, lambda machine, token, now_ms: operation(machine, fresh, token, now_ms))


async def settle(answer: Any) -> Any:
    return await answer if asyncio.isfuture(answer) else answer


def translate_code(code: ErrorCode, call: Call, fenced_since: int) -> ErrorCode:
    """Translate to a code that a client of this version knows."""
    if code is ErrorCode.PRODUCER_FENCED and call.version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


@handles(AddPartitionsToTxnRequest)
def add_partitions(parts: Parts, call: Call, request: AddPartitionsToTxnRequest) -> Steps[AddPartitionsToTxnResponse]:
    if call.version < 4:
        codes = yield from check_partitions(
            parts,
            request.v3_and_below_transactional_id,
            (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            request.v3_and_below_topics,
        )
        results = yield from by_topic(request.v3_and_below_topics, codes, call)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    answers = []
    for one in request.transactions:
        producer = (one.producer_id, one.producer_epoch)
        codes = yield from check_partitions(
            parts, one.transactional_id, producer, one.topics, EPOCH_PER_TRANSACTION, verify_only=one.verify_only
        )
        results = yield from by_topic(one.topics, codes, call)
        answers.append(AddPartitionsToTxnResult(transactional_id=one.transactional_id, topic_results=results))
        yield
    return AddPartitionsToTxnResponse(error_code=0, results_by_transaction=answers)


def check_partitions(
    parts: Parts,
    name: str,
    producer: tuple[int, int],
    topics: Iterable[AddPartitionsToTxnTopic],
    version: int = 0,
    *,
    verify_only: bool = False,
) -> Steps[dict[tuple[str, int], ErrorCode]]:
    """Add the partitions to the transaction, or with `verify_only` check them. Returns the code of each."""
    codes: dict[tuple[str, int], ErrorCode] = {}
    if verify_only:
        return (yield from verify(parts, name, producer, topics))
    missing = False
    for topic in topics:
        yield
        for index in topic.partitions:
            one = (topic.name, index)
            if not name:
                codes[one] = ErrorCode.INVALID_REQUEST
            elif exists(parts, one):
                codes[one] = ErrorCode.NONE
            else:
                codes[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                missing = True
            yield
    if not name:
        return codes
    if missing:  # all or none
        for one, code in codes.items():
            codes[one] = code or ErrorCode.OPERATION_NOT_ATTEMPTED
            yield
        return codes
    code = add(parts, name, producer, frozenset(codes), version)
    if asyncio.isfuture(code):
        adding = asyncio.ensure_future(wait_for_code(code))
        yield asyncio.shield(adding)
        code = adding.result()
    return dict.fromkeys(codes, code)


async def add_all(
    parts: Parts, name: str, producer: tuple[int, int], wanted: Partitions, version: int = 0
) -> dict[tuple[str, int], ErrorCode]:
    """Add all of these partitions to the transaction, or none."""
    if not name:
        return dict.fromkeys(wanted, ErrorCode.INVALID_REQUEST)
    missing = {one for one in wanted if not exists(parts, one)}
    if missing:
        return {
            one: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if one in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
            for one in wanted
        }
    code = add(parts, name, producer, wanted, version)
    return dict.fromkeys(wanted, await wait_for_code(code) if asyncio.isfuture(code) else code)


def add(parts: Parts, name: str, producer: tuple[int, int], wanted: Partitions, version: int) -> Any:
    """The coordinator's code for adding these partitions, or a Future of it."""
    try:
        return parts.transactions.run(
            name, lambda machine, token, now_ms: machine.add(name, *producer, wanted, version, token, now_ms)
        )
    except BrokerError as error:
        return error.code


async def wait_for_code(answer: asyncio.Future[ErrorCode]) -> ErrorCode:
    try:
        return await answer
    except BrokerError as error:
        return error.code


def verify(
    parts: Parts, name: str, producer: tuple[int, int], topics: Iterable[AddPartitionsToTxnTopic]
) -> Steps[dict[tuple[str, int], ErrorCode]]:
    """Whether each of these partitions is in the transaction. Waits until that is committed."""
    wanted = [(topic.name, index) for topic in topics for index in topic.partitions]
    codes: dict[tuple[str, int], ErrorCode] = {}
    try:
        machine = parts.transactions.peek(name)
        for one in wanted:
            codes |= machine.verify(name, *producer, frozenset((one,)))
            yield
        yield from parts.transactions.wait_for_commit(name, machine)
    except BrokerError as error:
        return dict.fromkeys(wanted, error.code)
    return codes


def exists(parts: Parts, partition: tuple[str, int]) -> bool:
    topic = parts.metadata.image.topics.get(partition[0])
    return topic is not None and 0 <= partition[1] < len(topic.partitions)


def by_topic(
    topics: Iterable[AddPartitionsToTxnTopic], codes: dict[tuple[str, int], ErrorCode], call: Call
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    found = []
    for topic in topics:
        results = []
        for index in topic.partitions:
            code = translate_code(codes[topic.name, index], call, 2)
            results.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
            yield
        found.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results))
        yield
    return found


@handles(AddOffsetsToTxnRequest)
async def add_offsets(parts: Parts, call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    code = await add_group(
        parts, request.transactional_id, (request.producer_id, request.producer_epoch), request.group_id, 0
    )
    return AddOffsetsToTxnResponse(error_code=translate_code(code, call, 2))


async def add_group(parts: Parts, name: str, producer: tuple[int, int], group: str, version: int) -> ErrorCode:
    """Add the offsets partition of a group to the transaction."""
    await parts.groups.ensure()
    partition = (parts.groups.topic, parts.groups.index_of(group))
    return (await add_all(parts, name, producer, frozenset((partition,)), version))[partition]


@handles(EndTxnRequest)
def end_txn(parts: Parts, call: Call, request: EndTxnRequest) -> Answer[EndTxnResponse]:
    name = request.transactional_id
    if not name:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    version = EPOCH_PER_TRANSACTION if call.version >= NEWER_END else 0
    reply = run_with_id(
        parts,
        name,
        lambda machine, fresh, token, now_ms: machine.end(
            name,
            request.producer_id,
            request.producer_epoch,
            version,
            fresh,
            token,
            now_ms,
            commit=request.committed,
        ),
    )
    return answer_end(call, reply) if isinstance(reply, ProducerReply) else answer_end_later(call, reply)


def answer_end(call: Call, reply: ProducerReply) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=translate_code(reply.code, call, 2), producer_id=reply.producer_id, producer_epoch=reply.epoch
    )


async def answer_end_later(call: Call, reply: Coroutine[None, None, ProducerReply]) -> EndTxnResponse:
    return answer_end(call, await reply)


@handles(TxnOffsetCommitRequest)
async def txn_offset_commit(parts: Parts, call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    try:
        await parts.groups.ensure()
    except BrokerError as error:
        missing, _ = find_missing(parts.metadata.image, request.topics)
        return refuse_in_transaction(request, error.code, missing)
    answers = []
    for portion in portions(request):
        code = await admit(parts, call, portion, (request.producer_id, request.producer_epoch))
        answers.append(await commit_portion(parts, call, portion, code))  # it appends before it waits
        await asyncio.sleep(0)
    return join_answers(answers)


async def commit_portion(
    parts: Parts, call: Call, request: TxnOffsetCommitRequest, code: ErrorCode
) -> TxnOffsetCommitResponse:
    missing, _ = find_missing(parts.metadata.image, request.topics)
    if code is not ErrorCode.NONE:
        return refuse_in_transaction(request, code, missing)
    caller = caller_of(parts, call)
    try:
        response = await settle(
            parts.groups.run(
                request.group_id,
                lambda machine, token, now_ms: machine.commit_in_transaction(request, caller, token, now_ms, missing),
            )
        )
    except BrokerError as error:
        return refuse_in_transaction(request, error.code, missing)
    assert isinstance(response, TxnOffsetCommitResponse)
    return response


async def admit(parts: Parts, call: Call, request: TxnOffsetCommitRequest, producer: tuple[int, int]) -> ErrorCode:
    """Whether the offsets partition is part of the transaction; the newer protocol adds it with this request."""
    name, adds = request.transactional_id, call.version >= NEWER_COMMIT
    if not request.group_id:  # OffsetCommit accepts it, for old clients without groups
        return ErrorCode.INVALID_GROUP_ID
    if not name:
        return ErrorCode.INVALID_REQUEST
    if not adds and not parts.config.transaction_partition_verification_enable:
        return ErrorCode.NONE
    try:
        parts.groups.peek(request.group_id)  # BrokerError while the coordinator loads
        while True:
            partition = parts.replicas.require_led(parts.groups.topic, parts.groups.index_of(request.group_id))
            code = parts.transactions.verification.admit(partition, name, producer, adds=adds)
            if isinstance(code, ErrorCode):
                break
            await code
    except BrokerError as error:
        return ErrorCode.NOT_COORDINATOR if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else error.code
    if code is ErrorCode.TRANSACTION_ABORTABLE and call.version < ABORTABLE_COMMIT:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


@handles(WriteTxnMarkersRequest)
def write_txn_markers(parts: Parts, call: Call, request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    """Write markers for the coordinator on another broker. The answer has a code for each."""
    markers = []
    uncommitted: list[tuple[WritableTxnMarkerPartitionResult, asyncio.Future[None]]] = []
    for one in request.markers:
        markers.append((yield from write_markers(parts, one, uncommitted)))
        yield
    for result, future in uncommitted:
        if not future.done():
            yield future
        result.error_code = code_of(future)
    return WriteTxnMarkersResponse(markers=markers)


def code_of(future: asyncio.Future[None]) -> ErrorCode:
    """The result of a commit's future."""
    if future.cancelled():
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = future.exception()
    if error is None:
        return ErrorCode.NONE
    return error.code if isinstance(error, BrokerError) else ErrorCode.UNKNOWN_SERVER_ERROR


def write_markers(
    parts: Parts,
    asked: WritableTxnMarker,
    uncommitted: list[tuple[WritableTxnMarkerPartitionResult, asyncio.Future[None]]],
) -> Steps[WritableTxnMarkerResult]:
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_version,
        commits=asked.transaction_result,
    )
    topics = []
    for topic in asked.topics:
        partitions = []
        for index in topic.partition_indexes:
            result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
            try:
                if asked.producer_id < 0 or asked.producer_epoch < 0:  # no producer; Kafka fails with this code
                    raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
                future = parts.markers.write(topic.name, index, marker)
                if future is not None:
                    uncommitted.append((result, future))
            except BrokerError as error:
                result.error_code = error.code
            partitions.append(result)
            yield
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
        yield
    return WritableTxnMarkerResult(producer_id=asked.producer_id, topics=topics)
