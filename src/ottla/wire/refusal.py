"""The answer to a request that says one error, and nothing else, for everything that the request asks for.

Kafka writes such an answer by hand for every API. Here it is read off the two messages: an answer has a code of its
own, or lists with a code in each element, and those lists follow a list of the request. An element takes what names it
(a topic, a partition, a group) from the element of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.wire.schema import FRESH, fields

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    if key == METADATA and not request.topics:  # of brokers only, or of everything
        return None
    answer = _mirror(response, request, version, code, deep=key in DEEP)
    return answer if _says(answer, version) else None


def _mirror(cls: type, source: Any, version: int, code: int, *, deep: bool) -> Any:
    """An instance of `cls` for what `source` names, with the outermost code; with `deep` the next one inside."""
    present = [field for field in fields(cls) if field.present(version)]
    values: dict[str, Any] = {field.name: _value(field, source) for field in fields(cls) if field.required}
    values |= {field.name: _value(field, source) for field in present if _is_plain(field)}
    lists = [field for field in present if _leads_to_code(field, version)]
    own = next((field.name for field in present if field.name.endswith(CODE)), None)
    if own is None or deep:
        for field in lists:
            assert field.struct is not None
            values[field.name] = [
                _mirror(field.struct, item, version, code, deep=False) for item in _items(field, source, version)
            ]
    if own is not None and not any(values.get(field.name) for field in lists):
        values[own] = code
    return cls(**values)


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


def _value(field: Field, source: Any) -> Any:
    """What names the element in the request, or the kind's default."""
    names = next((names for names in NAMES if field.name in names), None)
    if field.array or names is None:
        return _default(field)
    if hasattr(source, "__wire__"):
        there = {one.name for one in fields(type(source)) if (one.kind, one.format) == (field.kind, field.format)}
        return next((getattr(source, name) for name in sorted(names & there)), _default(field))
    fits = isinstance(source, str) if field.kind == "string" else isinstance(source, int) and field.format == "i"
    return source if fits else _default(field)


def _default(field: Field) -> Any:
    if field.name in UNKNOWN:
        return UNKNOWN[field.name]
    return [] if field.default is FRESH else field.default


def _says(answer: Any, version: int) -> bool:
    for field in fields(type(answer)):
        value = getattr(answer, field.name)
        if field.name.endswith(CODE) and field.present(version) and value:
            return True
        if field.array and field.struct is not None and any(_says(one, version) for one in value or ()):
            return True
    return False
