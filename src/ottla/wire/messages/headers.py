"""The headers as declared schemas. `ottla.wire.frame` reads and writes them by hand; its tests compare it with these.

RequestHeader: versions 0 to 2
     1  adds client_id
     2  flexible

ResponseHeader: versions 0 to 1
     1  flexible
"""

from __future__ import annotations

from ottla.wire.schema import at, i16, i32, message, string


@message(None, versions=(0, 2), flexible=2)
class RequestHeader:
    request_api_key: i16
    request_api_version: i16
    correlation_id: i32
    client_id: string | None = at(1, default="", compact=False)


@message(None, versions=(0, 1), flexible=1)
class ResponseHeader:
    correlation_id: i32
