"""Who coordinates, and who a producer is: FindCoordinator (10), InitProducerId (22).

FindCoordinator v1 kinds of keys; v3 flexible; v4 many keys at once; v5-6 newer kinds and errors. On one node every
coordinator is this broker.
InitProducerId v2 flexible; v3 a producer that asks again; v4-5 newer errors. Idempotent producers get a fresh id; a
transactional one needs a transaction coordinator, which this broker does not have yet.
"""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.handlers.call import Call, Parts, handles
from ottla.handlers.metadata import address
from ottla.wire.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

GROUP, TRANSACTION = 0, 1


@handles(FindCoordinatorRequest, versions=(0, 6))
def find_coordinator(parts: Parts, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    known = request.key_type in (GROUP, TRANSACTION)
    code, message = (0, None) if known else (ErrorCode.INVALID_REQUEST, f"key type {request.key_type} is not known")
    node_id, (host, port) = (parts.node_id, address(parts, call)) if known else (-1, ("", -1))
    if call.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ]
    )


@handles(InitProducerIdRequest, versions=(0, 5))
async def init_producer_id(parts: Parts, call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        code = ErrorCode.INVALID_REQUEST if request.transactional_id == "" else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(error_code=0, producer_id=await parts.producer_ids.take(), producer_epoch=0)
