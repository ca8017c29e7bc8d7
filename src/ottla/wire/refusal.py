"""The answer to a request that says one error, and nothing else, for everything that the request asks for.

Kafka writes such an answer by hand for every API. Here it is read off the two messages: an answer has a code of its
own, or lists with a code in each element, and those lists follow a list of the request. An element takes what names it
(a topic, a partition, a group) from the element of the request.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.wire.schema import FRESH, fields

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ottla.wire.schema import Field

CODE: Final = "error_code"  # also the end of a longer name, such as `partition_error_code`
FETCH: Final = 1
METADATA: Final = 3
# The code of these is about the session, or about all topics: that of what they ask for counts, if they ask for any.
DEEP: Final = frozenset((FETCH, METADATA))
# What names an element. One thing has several names.
NAMES: Final = (
    frozenset(("name", "topic", "topic_name")),
    frozenset(("partition", "partition_index", "index", "partition_id")),
    frozenset(("group_id", "group", "key")),
    *(frozenset((name,)) for name in ("topic_id", "transactional_id", "member_id", "producer_id")),
    *(frozenset((name,)) for name in ("resource_type", "resource_name")),
)
UNKNOWN: Final = dict.fromkeys(("base_offset", "high_watermark", "low_watermark", "committed_offset"), -1)


def refuse(key: int, response: type, request: Any, version: int, code: int) -> Any | None:
    """None where the answer to this request has no place for a code: it asks for nothing that could fail."""
    steps = refuse_in_steps(key, response, request, version, code)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def refuse_in_steps(
    key: int, response: type, request: Any, version: int, code: int, *, silent: bool = False
) -> Generator[None, None, Any | None]:
    """The same, with a step for each element of a list. With `silent` an answer without a code is one, too."""
    if key == METADATA and not request.topics and not silent:  # of brokers only, or of everything
        return None
    answer, says = yield from _mirror(response, request, version, code, deep=key in DEEP)
    return answer if says or silent else None


class _Plan(NamedTuple):
    """How an element of an answer is filled in."""

    fixed: tuple[Field, ...]  # take their default
    named: tuple[Field, ...]  # take what names the element in the request
    lists: tuple[Field, ...]  # have codes further inside
    own: str | None  # the field of the element's own code


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
    """An instance of `cls` for what `source` names, with the outermost code, and whether there is a place for one.

    With `deep` the next code inside is set instead.
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
    """Whether it is a list of elements with codes, or with such lists."""
    return (
        field.array
        and field.struct is not None
        and any(
            one.present(version) and (one.name.endswith(CODE) or _leads_to_code(one, version))
            for one in fields(field.struct)
        )
    )


def _items(field: Field, source: Any, version: int) -> Sequence[Any]:
    """The list of the request that this list of the answer follows: of the same name, or else the first there is."""
    lists = {
        one.name: getattr(source, one.name)
        for one in (fields(type(source)) if hasattr(source, "__wire__") else ())
        if one.array and one.present(version)
    }
    return lists.get(field.name) or next((items for items in lists.values() if items), ())


def _aliases(field: Field) -> frozenset[str]:
    """The names under which the request may have what this field says."""
    return next((names for names in NAMES if field.name in names), frozenset())


def _value(field: Field, source: Any) -> Any:
    """What names the element in the request, or the kind's default."""
    if hasattr(source, "__wire__"):
        name = _source(source.__class__, _aliases(field), field.kind, field.format)
        return _default(field) if name is None else getattr(source, name)
    fits = isinstance(source, str) if field.kind == "string" else isinstance(source, int) and field.format == "i"
    return source if fits else _default(field)


@functools.cache
def _source(request: type, names: frozenset[str], kind: str, shape: str) -> str | None:
    """The field of the request's element that has one of these names, and the same kind."""
    there = {field.name for field in fields(request) if (field.kind, field.format) == (kind, shape)}
    return next(iter(sorted(names & there)), None)


def _default(field: Field) -> Any:
    if field.name in UNKNOWN:
        return UNKNOWN[field.name]
    return [] if field.default is FRESH else field.default
