"""Builds the response that reports one error for everything in a request.

Kafka has such code for every API. Here the response is derived from the two messages: it has an error code of its own,
or lists with a code in each element, and those lists match a list of the request. The fields that identify an element
(a topic, a partition, a group) are copied from the element of the request.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.wire.schema import FRESH, fields

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ottla.wire.schema import Field

CODE: Final = "error_code"  # also the suffix of a longer name, such as `partition_error_code`
FETCH: Final = 1
METADATA: Final = 3
# Their top-level code is about the session, or about all topics. So the code is set on the elements, if there are any.
DEEP: Final = frozenset((FETCH, METADATA))
# The fields that identify an element. The same thing may have several names.
NAMES: Final = (
    frozenset(("name", "topic", "topic_name")),
    frozenset(("partition", "partition_index", "index", "partition_id")),
    frozenset(("group_id", "group", "key")),
    *(frozenset((name,)) for name in ("topic_id", "transactional_id", "member_id", "producer_id")),
    *(frozenset((name,)) for name in ("resource_type", "resource_name")),
)
UNKNOWN: Final = dict.fromkeys(("base_offset", "high_watermark", "low_watermark", "committed_offset"), -1)


def refuse(key: int, response: type, request: Any, version: int, code: int) -> Any | None:
    """None if the response to this request has no error code: nothing in the request can fail."""
    steps = refuse_in_steps(key, response, request, version, code)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def refuse_in_steps(
    key: int, response: type, request: Any, version: int, code: int, *, silent: bool = False
) -> Generator[None, None, Any | None]:
    """The same, with a step for each element of a list. `silent`: also return a response without an error code."""
    if key == METADATA and not request.topics and not silent:  # for brokers only, or for everything
        return None
    answer, says = yield from _mirror(response, request, version, code, deep=key in DEEP)
    return answer if says or silent else None


class _Plan(NamedTuple):
    """How to fill in an element of a response."""

    fixed: tuple[Field, ...]  # keep their default
    named: tuple[Field, ...]  # copied from the request's element
    lists: tuple[Field, ...]  # contain codes further inside
    own: str | None  # the field with the element's own code


@functools.cache
def _plan(cls: type, version: int) -> _Plan:
    present = [field for field in fields(cls) if field.present(version)]
    filled = [field for field in fields(cls) if field.required or (field in present and _is_plain(field))]
    return _Plan(
        fixed=tuple(field for field in filled if field.array or not _aliases(field)),
        named=tuple(field for field in filled if not field.array and _aliases(field)),
        lists=tuple(field for field in present if _leads_to_code(field, version)),
        own=next((field.name for field in present if field.name.endswith(CODE)), None),
    )


def _mirror(cls: type, source: Any, version: int, code: int, *, deep: bool) -> Generator[None, None, tuple[Any, bool]]:
    """An instance of `cls` for the element `source`, with the outermost code set, and whether it has one.

    With `deep` the next inner code is set instead.
    """
    plan = _plan(cls, version)
    values: dict[str, Any] = {field.name: _default(field) for field in plan.fixed}
    for field in plan.named:
        values[field.name] = _value(field, source)
    says = False
    if plan.own is None or deep:
        for field in plan.lists:
            assert field.struct is not None
            answers = values[field.name] = []
            for item in _items(field, source, version):
                answer, said = yield from _mirror(field.struct, item, version, code, deep=False)
                answers.append(answer)
                says = says or said
                yield
    if plan.own is not None and not says:
        values[plan.own], says = code, True
    return cls(**values), says


def _is_plain(field: Field) -> bool:
    return not field.array and field.struct is None


def _leads_to_code(field: Field, version: int) -> bool:
    """Whether it is a list of elements with codes, directly or in inner lists."""
    return (
        field.array
        and field.struct is not None
        and any(
            one.present(version) and (one.name.endswith(CODE) or _leads_to_code(one, version))
            for one in fields(field.struct)
        )
    )


def _items(field: Field, source: Any, version: int) -> Sequence[Any]:
    """The list of the request that matches this list of the response: of the same name, or else the first one."""
    lists = {
        one.name: getattr(source, one.name)
        for one in (fields(type(source)) if hasattr(source, "__wire__") else ())
        if one.array and one.present(version)
    }
    return lists.get(field.name) or next((items for items in lists.values() if items), ())


def _aliases(field: Field) -> frozenset[str]:
    """The names that this field may have in the request."""
    return next((names for names in NAMES if field.name in names), frozenset())


def _value(field: Field, source: Any) -> Any:
    """The value that identifies the element in the request, or the default of its kind."""
    if hasattr(source, "__wire__"):
        name = _source(source.__class__, _aliases(field), field.kind, field.format)
        return _default(field) if name is None else getattr(source, name)
    fits = isinstance(source, str) if field.kind == "string" else isinstance(source, int) and field.format == "i"
    return source if fits else _default(field)


@functools.cache
def _source(request: type, names: frozenset[str], kind: str, shape: str) -> str | None:
    """The field of the request's element with one of these names and the same kind."""
    there = {field.name for field in fields(request) if (field.kind, field.format) == (kind, shape)}
    return next(iter(sorted(names & there)), None)


def _default(field: Field) -> Any:
    if field.name in UNKNOWN:
        return UNKNOWN[field.name]
    return [] if field.default is FRESH else field.default
