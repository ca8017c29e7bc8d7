"""Attacks by number: requests that name one thing a hundred thousand times, or a hundred thousand things once.

Those that once did damage come first, in that size. After them each array of the newest version of every API is filled
up, so that new APIs are attacked without a new test.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from compat.raw import METADATA, array, string
from fuzz.hostile.stage import PATIENCE_S, Stage, attack
from handlers.wired import Wired

from ottla.handlers import load
from ottla.handlers.call import REGISTRY
from ottla.wire import codec, frame
from ottla.wire.apis import BY_KEY
from ottla.wire.decoding import RECORDS_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX, has_records
from ottla.wire.messages.commits import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from ottla.wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema import FRESH, fields, spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TARGET: Final = "target"


def ask(stage: Stage, request: object, version: int) -> None:
    """Send a request, and wait for the answer if there is one."""
    key = spec(type(request)).key
    assert key is not None
    raw = stage.raw()
    raw.send_frame(frame.request_header(key, version, 1, "attacker") + codec.encode(request, version))
    stage.hear(raw)


def asking(name: str, make: Callable[[Stage], object], version: int) -> None:
    @attack(name)
    def perform(stage: Stage) -> Iterator[None]:
        stage.topic(TARGET, 2)
        request = make(stage)
        yield
        ask(stage, request, version)


@attack("Metadata that names one topic 500,000 times")
def metadata(stage: Stage) -> Iterator[None]:
    topic = stage.topic(TARGET)
    body = array([string(topic)] * stage.size(100_000, 500_000)) + b"\0"
    yield
    raw = stage.raw()
    raw.send(METADATA, 4, body)
    stage.hear(raw)


@attack("Metadata that names 200,000 topics that are not there")
def missing(stage: Stage) -> Iterator[None]:
    body = array([string(f"no-such-{number}") for number in range(stage.size(50_000, 200_000))]) + b"\0"
    yield
    raw = stage.raw()
    raw.send(METADATA, 4, body)
    stage.hear(raw)


asking(
    "DescribeConfigs of one topic 100,000 times",
    lambda stage: DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=TARGET, configuration_keys=None)]
        * stage.size(10_000, 100_000),
        include_synonyms=True,
        include_documentation=True,
    ),
    4,
)
asking(
    "DescribeConfigs of one option a million times",
    lambda stage: DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=2,
                resource_name=TARGET,
                configuration_keys=["retention.ms"] * stage.size(100_000, 1_000_000),
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    ),
    4,
)


def fetching(stage: Stage, *, session: int) -> FetchRequest:
    place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = FetchTopic(topic=TARGET, partitions=[place] * stage.size(100_000, 1_000_000))
    return FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=session, topics=[topic])


asking("Fetch of one partition a million times", lambda stage: fetching(stage, session=-1), 11)
asking("Fetch session of one partition a million times", lambda stage: fetching(stage, session=0), 11)
asking(
    "Fetch of a million partitions that are not there",
    lambda stage: FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            FetchTopic(
                topic=TARGET,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
                    for index in range(stage.size(100_000, 1_000_000))
                ],
            )
        ],
    ),
    11,
)
asking(
    "OffsetFetch of 20,000 groups",
    lambda stage: OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=f"g{number}",
                topics=[OffsetFetchRequestTopics(name=TARGET, partition_indexes=list(range(20)))],
            )
            for number in range(stage.size(5_000, 20_000))
        ],
        require_stable=False,
    ),
    8,
)
asking(
    "OffsetFetch of a million partitions",
    lambda stage: OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[
                    OffsetFetchRequestTopics(name=TARGET, partition_indexes=list(range(stage.size(100_000, 1_000_000))))
                ],
            )
        ],
        require_stable=False,
    ),
    8,
)


def committing(stage: Stage, *, same: bool) -> OffsetCommitRequest:
    places = [
        OffsetCommitRequestPartition(partition_index=0 if same else index, committed_offset=5, committed_metadata="")
        for index in range(stage.size(50_000, 500_000))
    ]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=TARGET, partitions=places)],
    )


asking("OffsetCommit of one partition 500,000 times", lambda stage: committing(stage, same=True), 8)
asking("OffsetCommit of 500,000 partitions that are not there", lambda stage: committing(stage, same=False), 8)
asking(
    "DescribeGroups of one group 500,000 times",
    lambda stage: DescribeGroupsRequest(groups=["g"] * stage.size(100_000, 500_000)),
    5,
)
asking(
    "FindCoordinator for 500,000 groups",
    lambda stage: FindCoordinatorRequest(
        key_type=0, coordinator_keys=[f"g{number}" for number in range(stage.size(100_000, 500_000))]
    ),
    4,
)


def creating(count: int) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=f"new-{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for number in range(count)
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000)


asking("CreateTopics of 1,900 topics", lambda stage: creating(stage.size(500, 1_900)), 5)
asking(
    "CreateTopics of one topic of 5,000 partitions",
    lambda stage: CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="wide", num_partitions=stage.size(1_000, 5_000), replication_factor=1, assignments=[], configs=[]
            )
        ],
        timeout_ms=60_000,
    ),
    5,
)


@attack("DeleteTopics of 1,000 topics")
def deleting(stage: Stage) -> Iterator[None]:
    count = stage.size(300, 1_000)
    with Wired(stage.port, timeout_s=PATIENCE_S) as wired:
        wired.ask(creating(count), 5)
    yield
    names = [DeleteTopicState(name=f"new-{number}", topic_id=bytes(16)) for number in range(count)]
    ask(stage, DeleteTopicsRequest(topics=names, timeout_ms=60_000), 6)


@attack("Metadata of 90 MiB of long names")
def long_names(stage: Stage) -> Iterator[None]:
    size = stage.size(20, 90) << 20
    name = string("x" * 32_000)
    body = array([name] * (size // len(name))) + b"\0"
    yield
    raw = stage.raw()
    raw.send(METADATA, 4, body)
    stage.hear(raw)


asking(
    "a join with 90 MiB of metadata",
    lambda stage: JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(stage.size(20, 90) << 20))],
    ),
    3,
)
asking(
    "a join with 100,000 protocols",
    lambda stage: JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name=f"p{number}", metadata=b"") for number in range(stage.size(20_000, 100_000))
        ],
    ),
    3,
)


@attack("fifty members with 1 MiB of metadata each, who join again and again")
def joining(stage: Stage) -> Iterator[None]:
    def request(member: int) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1_000,
            member_id="",
            group_instance_id=f"i{member}",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(stage.size(1 << 18, 1 << 20)))],
        )

    bodies = [frame.request_header(11, 5, 1, "attacker") + codec.encode(request(member), 5) for member in range(50)]
    yield

    def join(body: bytes) -> None:
        raw = stage.raw(timeout_s=3)
        for _ in range(2):
            raw.send_frame(body)
            stage.hear(raw)

    stage.together([lambda body=body: join(body) for body in bodies])  # type: ignore[misc]


# --- every array of every API ----------------------------------------------------------------------------------------


def plain(cls: type[Any], version: int) -> Any:
    """An instance with the simplest values: zeros, the name of a topic, one element in each array."""
    made = object.__new__(cls)
    for field in fields(cls):
        if not field.present(version) or field.tag is not None:
            if field.default is FRESH:
                setattr(made, field.name, [])
        else:
            one = element(field, version)
            setattr(made, field.name, [one] if field.array else one)
    return made


def element(field: Any, version: int) -> Any:
    if field.struct is not None:
        return plain(field.struct, version)
    if field.kind == "string":
        return TARGET
    if field.kind == "fixed":
        return bytes(16) if field.format == "16s" else 0
    return None if field.may_be_null(version) else b""


def arrays(cls: type[Any], version: int) -> Iterator[tuple[str, ...]]:
    """Where arrays are in a message: paths of names."""
    for field in fields(cls):
        if field.present(version) and field.tag is None:
            if field.array:
                yield (field.name,)
            if field.struct is not None:
                for path in arrays(field.struct, version):
                    yield (field.name, *path)


def filled(cls: type[Any], version: int, path: tuple[str, ...], count: int, *, distinct: bool) -> bytes:
    """The message with one array of so many elements, or as many as are read; all the same, or each another one."""
    made = plain(cls, version)
    holder = made
    for name in path[:-1]:
        inner = getattr(holder, name)
        holder = inner[0] if isinstance(inner, list) else inner
    (one,) = getattr(holder, path[-1])
    most = RECORDS_ELEMENTS_MAX if has_records(cls, version) else REQUEST_ELEMENTS_MAX
    count = min(count, (most - elements(made)) // (1 + elements(one)))
    found = [numbered(one, number) for number in range(count)] if distinct else [one] * count
    setattr(holder, path[-1], found)
    return codec.encode(made, version)


def elements(value: Any) -> int:
    """How many elements the arrays of a message have in all."""
    if isinstance(value, list):
        return len(value) + sum(map(elements, value))
    return sum(elements(part) for part in vars(value).values()) if hasattr(value, "__wire__") else 0


def numbered(value: Any, number: int) -> Any:
    """The same with another name, or another number."""
    if isinstance(value, str):
        return f"{value}-{number}"
    if isinstance(value, list):
        return [numbered(one, number) for one in value]
    if hasattr(value, "__wire__"):
        made = object.__new__(type(value))
        for name, part in vars(value).items():
            setattr(made, name, numbered(part, number))
        return made
    return number % 128 if value == 0 and not isinstance(value, bool) else value


def sweeping(part: int, parts: int) -> None:
    @attack(f"every array of every API, part {part + 1} of {parts}")
    def perform(stage: Stage) -> Iterator[None]:
        stage.topic(TARGET, 2)
        load()
        keys = sorted(key for key, one in REGISTRY.items() if not one.for_members)[part::parts]
        yield
        for key in keys:
            cls, version = BY_KEY[key].request, REGISTRY[key].versions[1]
            for path in arrays(cls, version):
                for distinct in (False, True):
                    body = filled(cls, version, path, stage.size(10_000, 1 << 20), distinct=distinct)
                    data = frame.request_header(key, version, 1, "attacker") + body
                    stage.together([partial(send, stage, data)] * stage.size(1, 5))
                    stage.step(f"{BY_KEY[key].name} {'.'.join(path)}")


def send(stage: Stage, data: bytes) -> None:
    raw = stage.raw(timeout_s=3)
    raw.send_frame(data)
    stage.hear(raw)
    raw.close()


for number in range(4):
    sweeping(number, 4)
