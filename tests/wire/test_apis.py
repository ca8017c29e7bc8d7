"""The table of APIs against what the messages themselves say, and against Apache Kafka's list of keys."""

from __future__ import annotations

import pytest
from wire.definitions import definitions
from wire.samples import all_messages

from ottla.wire.apis import BY_KEY, by_name
from ottla.wire.schema import spec

# Two names for one key: 3.9 calls version 0 of ListConfigResources so.
OLD_NAMES = {"ListClientMetricsResourcesRequest", "ListClientMetricsResourcesResponse"}


def test_every_message_with_a_key_belongs_to_its_api() -> None:
    pairs = {message for api in BY_KEY.values() for message in (api.request, api.response)}
    keyed = {cls for cls in all_messages() if spec(cls).key is not None}
    assert {cls.__name__ for cls in keyed - pairs} == OLD_NAMES
    assert pairs <= keyed
    for key, api in BY_KEY.items():
        assert (api.key, spec(api.request).key, spec(api.response).key) == (key, key, key)
        assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")
        assert api.versions == spec(api.request).versions == spec(api.response).versions
        assert api.flexible == spec(api.request).flexible == spec(api.response).flexible


def test_every_key_of_apache_kafka_is_there() -> None:
    keys = {one.key for release in ("4.3.1", "3.9.2") for one in definitions(release).values() if one.kind == "request"}
    assert set(BY_KEY) == keys
    assert len(BY_KEY) == len(keys) == 93


def test_lookups() -> None:
    assert by_name("Produce") is BY_KEY[0]
    assert 0 in BY_KEY
    assert 999 not in BY_KEY
    assert BY_KEY.get(999) is None
    with pytest.raises(KeyError):
        BY_KEY[999]
    with pytest.raises(KeyError):
        by_name("Nonsense")
