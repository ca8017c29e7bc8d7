"""The clients that push metrics, and the last series of each.

A client sends GetTelemetrySubscriptions and gets its subscription id, what to push and how often; then it pushes. It
may not ask or push again before the interval is over, with three exceptions: the first push after asking, the last push
before it terminates, and asking again after its subscription was unknown. These are Kafka's rules.

A client that is silent for three intervals, or terminates, is removed with its series. There are limits on the number
of clients (the one silent for longest is removed first), of all series, and of labels of a series.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clock import steady_ms
from ottla.errors import BrokerError, ErrorCode
from ottla.records import aside
from ottla.records.compress import CorruptError, decompress
from ottla.telemetry import otlp
from ottla.telemetry.protobuf import MalformedError
from ottla.telemetry.subscriptions import choose_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.clock import Clock
    from ottla.telemetry.subscriptions import Client, Configs, Subscription

CLIENTS_MAX: Final = 16_384
EXPIRY_MS_MIN: Final = 60_000
LABELS_MAX: Final = 16
INFLATED_RATIO_MAX: Final = 16
CODECS: Final = (4, 3, 1, 2)  # zstd, lz4, gzip, snappy: in Kafka's order
NO_CODEC: Final = 0
AGAIN: Final = frozenset((ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
_UNFIT = re.compile(r"[^a-zA-Z0-9_]")


class Series(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]


class Instance:
    """One client."""

    def __init__(self, wants: Subscription, configs: object, used_ms: int) -> None:
        self.wants = wants
        self.configs = configs  # `wants` was computed from these
        self.used_ms = used_ms
        self.asked_ms = self.pushed_ms = -(1 << 60)
        self.error = ErrorCode.NONE
        self.terminating = False
        self.values: dict[Series, tuple[float, bool]] = {}  # value, and whether it is monotonic

    @property
    def expiry_ms(self) -> int:
        return self.used_ms + max(3 * self.wants.interval_ms, EXPIRY_MS_MIN)


class Telemetry:
    def __init__(
        self,
        clock: Clock,
        configs: Callable[[], Configs],
        new_id: Callable[[], bytes],
        *,
        size_max: int,
        series_max: int,
        always: bool = False,
    ) -> None:
        self.size_max = size_max
        self.pushes: Counter[str] = Counter()  # by error code
        self.left_out = 0  # series of the last push that exceeded the limit
        self._clock = clock
        self._configs = configs
        self._new_id = new_id
        self._series_max = series_max
        self._always = always
        self._series = 0
        self._instances: dict[str, Instance] = {}  # in the order of their last use

    def __len__(self) -> int:
        self._forget_silent()
        return len(self._instances)

    @property
    def wanted(self) -> bool:
        """Whether to advertise the telemetry APIs: most clients push as soon as they can, and some log that."""
        return self._always or bool(self._configs())

    def new_id(self) -> bytes:
        """A new id, for a client that has none yet."""
        return self._new_id()

    def ask(self, client: Client) -> Subscription:
        """What a client should push. BrokerError if it asks too early."""
        instance, now_ms = self._instance(client), steady_ms(self._clock)
        early = now_ms - max(instance.asked_ms, instance.pushed_ms) < instance.wants.interval_ms
        if early and instance.error not in AGAIN:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if not early:
            instance.asked_ms = now_ms
        instance.error = ErrorCode.NONE
        return instance.wants

    def push(self, client: Client, subscription: int, codec: int, data: bytes, *, terminating: bool) -> Iterator[Any]:
        """Handle a push, in slices. BrokerError if it is refused."""
        instance = self._instance(client)
        try:
            self._check(instance, subscription, codec, data, terminating=terminating)
            instance.error = ErrorCode.NONE
            if data:
                yield from self._take(instance, client, codec, data)
        except BrokerError as error:
            instance.error = error.code
            self.pushes[error.code.name] += 1
            raise
        self.pushes[ErrorCode.NONE.name] += 1
        if terminating:
            instance.terminating = True
            self._empty(instance)

    def _check(self, instance: Instance, subscription: int, codec: int, data: bytes, *, terminating: bool) -> None:
        now_ms = steady_ms(self._clock)
        if instance.terminating:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        first = instance.asked_ms > instance.pushed_ms
        if first or now_ms - instance.pushed_ms >= instance.wants.interval_ms:
            instance.pushed_ms = now_ms
        elif not terminating:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription != instance.wants.id:
            raise BrokerError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if codec != NO_CODEC and codec not in CODECS:
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(data) > self.size_max:
            raise BrokerError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _take(self, instance: Instance, client: Client, codec: int, data: bytes) -> Iterator[Any]:
        """Replace the series of the previous push by those of this one."""
        values: dict[Series, tuple[float, bool]] = {}
        room = self._series_max - self._series + len(instance.values)
        left_out = 0
        try:
            if codec != NO_CODEC:
                inflate = partial(decompress, codec, data, INFLATED_RATIO_MAX * self.size_max)
                inflated = aside.run(len(data), inflate)
                yield inflated
                data = inflated.result()
            for point in otlp.read(data):
                if point is None:
                    yield
                    continue
                one = series(point, client)
                if one not in values and len(values) >= room:
                    left_out += 1
                    continue
                before = instance.values.get(one, (0.0, True))[0] if point.delta and point.grows else 0.0
                values[one] = before + point.value, point.grows
        except (MalformedError, CorruptError, ValueError) as error:
            raise BrokerError(ErrorCode.INVALID_RECORD, str(error)) from None
        self.left_out = left_out
        if self._instances.get(client.client_instance_id) is instance:  # else it was removed meanwhile
            self._empty(instance)
            instance.values = values
            self._series += len(values)

    def _instance(self, client: Client) -> Instance:
        self._forget_silent()
        configs, now_ms = self._configs(), steady_ms(self._clock)
        instance = self._instances.pop(client.client_instance_id, None)
        if instance is None:
            instance = Instance(choose_metrics(configs, client), configs, now_ms)
            if len(self._instances) >= CLIENTS_MAX:
                self._forget(next(iter(self._instances)))
        elif instance.configs is not configs:
            before, instance.wants, instance.configs = instance.wants, choose_metrics(configs, client), configs
            if instance.wants != before:  # requests for the former subscription do not count
                instance.asked_ms = instance.pushed_ms = -(1 << 60)
        instance.used_ms = now_ms
        self._instances[client.client_instance_id] = instance
        return instance

    def _forget_silent(self) -> None:
        now_ms = steady_ms(self._clock)
        silent = []
        for name, instance in self._instances.items():
            if instance.expiry_ms <= now_ms:
                silent.append(name)
            elif instance.used_ms + EXPIRY_MS_MIN > now_ms:
                break  # the remaining ones were used later
        for name in silent:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self._empty(self._instances.pop(name))

    def _empty(self, instance: Instance) -> None:
        self._series -= len(instance.values)
        instance.values = {}

    def series(self) -> Iterator[tuple[Series, float, bool] | None]:
        """All that clients have pushed: each series, its value, and whether it is monotonic. None is a pause point."""
        self._forget_silent()
        for instance in list(self._instances.values()):
            yield None
            for one, (value, grows) in instance.values.items():
                yield one, value, grows


def series(point: otlp.DataPoint, client: Client) -> Series:
    """The series of a point: with names in Prometheus syntax and a limited number of labels."""
    labels = {"client_instance_id": client.client_instance_id, "client_id": client.client_id}
    for name, value in point.attributes.items():
        if len(labels) < LABELS_MAX:
            labels.setdefault(fit(name), value)
    return Series(f"client_{fit(point.name)}", tuple(labels.items()))


def fit(name: str) -> str:
    name = _UNFIT.sub("_", name)
    return f"_{name}" if not name or name[0].isdigit() or name.startswith("__") else name
