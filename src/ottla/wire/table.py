"""The page docs/protocol.md: every API that is declared, the versions we can read and write, and those a broker serves.

`make docs` writes the page. The handlers know the served versions, but this package does not import them, so the
versions are a parameter: key → lowest and highest version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.apis import BY_KEY
from ottla.wire.schema import LAST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.wire.apis import Api

_HEAD = """# Protocol

Every Kafka API that Ottla can read and write, from the oldest version to the newest of Apache Kafka 4.3, with those
that only Kafka up to 3.9 had. *Served* are the versions a broker answers and names in ApiVersions. What each version
changed is said at the top of the file that declares it.

{count} of {total} APIs are served. This page is generated: `make docs`.

| Key | API | Served | Declared | Flexible from | Declared in |
| ---: | --- | --- | --- | ---: | --- |
"""


def page(handled: Mapping[int, tuple[int, int]]) -> str:
    """The whole page as text."""
    unknown = sorted(set(handled) - set(BY_KEY))
    assert not unknown, f"handlers of APIs that are not declared: {unknown}"
    head = _HEAD.format(count=len(handled), total=len(BY_KEY))
    return head + "".join(_row(BY_KEY[key], handled.get(key)) for key in sorted(BY_KEY))


def _row(api: Api, served: tuple[int, int] | None) -> str:
    family = api.request.__module__.rpartition(".")[2]
    link = f"[{family}](../src/ottla/wire/messages/{family}.py)"
    flexible = "" if api.flexible > LAST else api.flexible
    return f"| {api.key} | {api.name} | {_span(served)} | {_span(api.versions)} | {flexible} | {link} |\n"


def _span(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return ""
    low, high = versions
    return f"{low}" if low == high else f"{low}-{high}"
