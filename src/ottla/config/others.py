"""Kafka's broker options that have no effect in Ottla, so that an ordinary `server.properties` is still accepted.

Most are accepted, with one notice that lists them. Those that would be unsafe to ignore (a listener without encryption,
a policy that is not applied) are refused, unless the value is Kafka's default.

One line each: name, type, default (`-` for none, `""` for empty), below the reason they share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.option import ConfigError, Option, Value, text_of
from ottla.config.security import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.config.option import Refusals

ACCEPTED = """
# One event loop serves all clients: there are no thread pools to size.
background.threads INT 10
num.io.threads INT 8
num.network.threads INT 3
num.replica.alter.log.dirs.threads INT -
# Ottla's ZooKeeper client has one kind of connection, and its truststore has no password.
zookeeper.clientCnxnSocket STRING -
zookeeper.ssl.truststore.password PASSWORD -
# The limit is per connection: the broker stops reading from it while too many responses are pending.
queued.max.requests INT 500
# Background work on logs starts with the broker, and idle producers are removed together with old segments.
log.initial.task.delay.ms LONG 30000
producer.id.expiration.check.interval.ms INT 600000
# Between brokers, timeouts and buffers are fixed, and unclean elections start as soon as they are allowed.
control.plane.listener.name STRING -
controller.socket.timeout.ms INT 30000
replica.socket.receive.buffer.bytes INT 65536
request.timeout.ms INT 30000
socket.connection.setup.timeout.max.ms LONG 30000
socket.connection.setup.timeout.ms LONG 10000
unclean.leader.election.interval.ms LONG 300000
# A coordinator decides and writes in one step on the event loop.
group.coordinator.append.linger.ms INT -1
group.coordinator.background.threads INT 2
group.coordinator.cached.buffer.max.bytes INT 1048588
group.coordinator.new.enable BOOLEAN false
group.coordinator.threads INT 4
offsets.commit.required.acks SHORT -1
offsets.load.buffer.size INT 5242880
offsets.topic.compression.codec INT 0
# Transactions: a standalone broker calls its coordinator directly, and its log has one replica.
add.partitions.to.txn.retry.backoff.max.ms INT 100
add.partitions.to.txn.retry.backoff.ms INT 20
transaction.state.log.load.buffer.size INT 5242880
# Share groups and Streams groups are not implemented.
group.share.assignment.interval.ms INT 1000
group.share.assignors LIST simple
group.share.delivery.count.limit INT 5
group.share.enable BOOLEAN false
group.share.heartbeat.interval.ms INT 5000
group.share.initialize.retry.interval.ms INT 30000
group.share.max.assignment.interval.ms INT 15000
group.share.max.delivery.count.limit INT 10
group.share.max.groups SHORT 10
group.share.max.heartbeat.interval.ms INT 15000
group.share.max.partition.max.record.locks INT 4000
group.share.max.record.lock.duration.ms INT 60000
group.share.max.session.timeout.ms INT 60000
group.share.max.share.sessions INT 2000
group.share.max.size INT 200
group.share.min.assignment.interval.ms INT 0
group.share.min.delivery.count.limit INT 2
group.share.min.heartbeat.interval.ms INT 5000
group.share.min.partition.max.record.locks INT 100
group.share.min.record.lock.duration.ms INT 15000
group.share.min.session.timeout.ms INT 45000
group.share.partition.max.record.locks INT 2000
group.share.persister.class.name STRING org.apache.kafka.server.share.persister.DefaultStatePersister
group.share.record.lock.duration.ms INT 30000
group.share.session.timeout.ms INT 45000
group.streams.assignment.interval.ms INT 1000
group.streams.heartbeat.interval.ms INT 5000
group.streams.initial.rebalance.delay.ms INT 3000
group.streams.max.assignment.interval.ms INT 15000
group.streams.max.heartbeat.interval.ms INT 15000
group.streams.max.session.timeout.ms INT 60000
group.streams.max.size INT 2147483647
group.streams.max.standby.replicas INT 2
group.streams.min.assignment.interval.ms INT 0
group.streams.min.heartbeat.interval.ms INT 5000
group.streams.min.session.timeout.ms INT 45000
group.streams.num.standby.replicas INT 0
group.streams.session.timeout.ms INT 45000
share.coordinator.append.linger.ms INT -1
share.coordinator.cached.buffer.max.bytes INT 1048588
share.coordinator.cold.partition.snapshot.interval.ms INT 300000
share.coordinator.load.buffer.size INT 5242880
share.coordinator.snapshot.update.records.per.snapshot INT 500
share.coordinator.state.topic.compression.codec INT 0
share.coordinator.state.topic.min.isr SHORT 2
share.coordinator.state.topic.num.partitions INT 50
share.coordinator.state.topic.prune.interval.ms INT 300000
share.coordinator.state.topic.replication.factor SHORT 3
share.coordinator.state.topic.segment.bytes INT 104857600
share.coordinator.threads INT 1
share.coordinator.write.timeout.ms INT 5000
share.fetch.purgatory.purge.interval.requests INT 1000
# Ottla keeps its metadata in its own store, not in a KRaft quorum.
broker.heartbeat.interval.ms INT 2000
broker.session.timeout.ms INT 9000
controller.performance.always.log.threshold.ms LONG 2000
controller.performance.sample.period.ms LONG 60000
controller.quorum.append.linger.ms INT 25
controller.quorum.auto.join.enable BOOLEAN false
controller.quorum.bootstrap.servers LIST ""
controller.quorum.election.backoff.max.ms INT 1000
controller.quorum.election.timeout.ms INT 1000
controller.quorum.fetch.max.bytes INT 1048576
controller.quorum.fetch.snapshot.max.bytes INT 1048576
controller.quorum.fetch.timeout.ms INT 2000
controller.quorum.request.timeout.ms INT 2000
controller.quorum.retry.backoff.ms INT 20
controller.quorum.voters LIST ""
early.start.listeners LIST -
eligible.leader.replicas.enable BOOLEAN false
initial.broker.registration.timeout.ms INT 60000
internal.metadata.delete.delay.millis LONG 60000
internal.metadata.log.segment.bytes INT -
internal.metadata.max.batch.size.in.bytes INT 8388608
log.dir.failure.timeout.ms LONG 30000
metadata.log.dir STRING -
metadata.log.max.record.bytes.between.snapshots LONG 20971520
metadata.log.max.snapshot.interval.ms LONG 3600000
metadata.log.segment.bytes INT 1073741824
metadata.log.segment.min.bytes INT 8388608
metadata.log.segment.ms LONG 604800000
metadata.max.idle.interval.ms INT 500
metadata.max.retention.bytes LONG 104857600
metadata.max.retention.ms LONG 604800000
server.max.startup.time.ms LONG 9223372036854775807
unstable.api.versions.enable BOOLEAN false
unstable.feature.versions.enable BOOLEAN false
# Copies between log directories are not throttled.
alter.log.dirs.replication.quota.window.num INT 11
alter.log.dirs.replication.quota.window.size.seconds INT 1
replica.alter.log.dirs.io.max.bytes.per.second LONG 9223372036854775807
# There is no tiered storage.
follower.fetch.last.tiered.offset.enable BOOLEAN false
log.local.retention.bytes LONG -2
log.local.retention.ms LONG -2
remote.fetch.max.wait.ms INT 500
remote.list.offsets.request.timeout.ms LONG 30000
remote.log.index.file.cache.total.size.bytes LONG 1073741824
remote.log.index.file.cache.ttl.ms LONG 900000
remote.log.manager.copier.thread.pool.size INT 10
remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807
remote.log.manager.copy.quota.window.num INT 11
remote.log.manager.copy.quota.window.size.seconds INT 1
remote.log.manager.expiration.thread.pool.size INT 10
remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807
remote.log.manager.fetch.quota.window.num INT 11
remote.log.manager.fetch.quota.window.size.seconds INT 1
remote.log.manager.follower.thread.pool.size INT 2
remote.log.manager.task.interval.ms LONG 30000
remote.log.manager.task.retry.backoff.max.ms LONG 30000
remote.log.manager.task.retry.backoff.ms LONG 500
remote.log.manager.task.retry.jitter DOUBLE 0.2
remote.log.manager.thread.pool.size INT 2
remote.log.metadata.custom.metadata.max.bytes INT 128
remote.log.metadata.manager.class.name STRING %s.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING -
remote.log.metadata.manager.impl.prefix STRING rlmm.config.
remote.log.metadata.manager.listener.name STRING -
remote.log.reader.max.pending.tasks INT 100
remote.log.reader.threads INT 10
remote.log.storage.manager.class.name STRING -
remote.log.storage.manager.class.path STRING -
remote.log.storage.manager.impl.prefix STRING rsm.config.
remote.log.storage.system.enable BOOLEAN false
# A delayed request is removed as soon as it is answered: there is nothing to purge.
delete.records.purgatory.purge.interval.requests INT 1
fetch.purgatory.purge.interval.requests INT 1000
producer.purgatory.purge.interval.requests INT 1000
# Metrics are served over HTTP instead.
auto.include.jmx.reporter BOOLEAN true
kafka.metrics.polling.interval.secs INT 10
kafka.metrics.reporters LIST ""
metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples INT 2
metrics.recording.level STRING INFO
metrics.sample.window.ms LONG 30000
"""

REFUSED = """
# Set it per listener and mechanism, as in Kafka: listener.name.NAME.MECHANISM.sasl.jaas.config.
sasl.jaas.config PASSWORD -
# Brokers do not authenticate with OAUTHBEARER, and the scope of a token is not checked.
sasl.login.callback.handler.class CLASS -
sasl.login.class CLASS -
sasl.login.connect.timeout.ms INT -
sasl.login.read.timeout.ms INT -
sasl.login.refresh.buffer.seconds SHORT 300
sasl.login.refresh.min.period.seconds SHORT 60
sasl.login.refresh.window.factor DOUBLE 0.8
sasl.login.refresh.window.jitter DOUBLE 0.05
sasl.login.retry.backoff.max.ms LONG 10000
sasl.login.retry.backoff.ms LONG 100
sasl.oauthbearer.assertion.algorithm STRING RS256
sasl.oauthbearer.assertion.claim.aud STRING -
sasl.oauthbearer.assertion.claim.exp.seconds INT 300
sasl.oauthbearer.assertion.claim.iss STRING -
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false
sasl.oauthbearer.assertion.claim.nbf.seconds INT 60
sasl.oauthbearer.assertion.claim.sub STRING -
sasl.oauthbearer.assertion.file STRING -
sasl.oauthbearer.assertion.private.key.file STRING -
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD -
sasl.oauthbearer.assertion.template.file STRING -
sasl.oauthbearer.client.credentials.client.id STRING -
sasl.oauthbearer.client.credentials.client.secret PASSWORD -
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100
sasl.oauthbearer.jwt.retriever.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope STRING -
sasl.oauthbearer.scope.claim.name STRING scope
sasl.oauthbearer.token.endpoint.url STRING -
# GSSAPI (Kerberos) is not supported.
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit
sasl.kerberos.min.time.before.relogin LONG 60000
sasl.kerberos.principal.to.local.rules LIST DEFAULT
sasl.kerberos.service.name STRING -
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8
# Passwords come from files: none is kept in the metadata store.
password.encoder.cipher.algorithm STRING AES/CBC/PKCS5Padding
password.encoder.iterations INT 4096
password.encoder.key.length INT 128
password.encoder.keyfactory.algorithm STRING -
password.encoder.old.secret PASSWORD -
password.encoder.secret PASSWORD -
# There is no KRaft controller to connect to.
sasl.mechanism.controller.protocol STRING GSSAPI
# TLS uses OpenSSL, not Java's implementation.
ssl.allow.dn.changes BOOLEAN false
ssl.allow.san.changes BOOLEAN false
ssl.keymanager.algorithm STRING SunX509
ssl.protocol STRING TLSv1.3
ssl.provider STRING -
ssl.secure.random.implementation STRING -
ssl.trustmanager.algorithm STRING PKIX
# Ottla's ZooKeeper client does not support this.
zookeeper.metadata.migration.enable BOOLEAN false
zookeeper.metadata.migration.min.batch.size INT 200
zookeeper.ssl.cipher.suites LIST -
zookeeper.ssl.crl.enable BOOLEAN false
zookeeper.ssl.enabled.protocols LIST -
zookeeper.ssl.ocsp.enable BOOLEAN false
zookeeper.ssl.protocol STRING TLSv1.2
# Java classes cannot be loaded.
principal.builder.class CLASS org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
sasl.client.callback.handler.class CLASS -
sasl.server.callback.handler.class CLASS -
security.providers STRING -
ssl.engine.factory.class CLASS -
alter.config.policy.class.name CLASS -
alter.config.policy.kraft.compatibility.enable BOOLEAN false
client.quota.callback.class CLASS -
config.providers LIST ""
create.topic.policy.class.name CLASS -
# Log folders cannot be closed to new partitions (cordoned) yet.
cordoned.log.dirs LIST ""
"""


class Other(NamedTuple):
    row: Option
    reason: str
    refused: bool


def _table(text: str, *, refused: bool) -> Iterable[tuple[str, Other]]:
    reason = ""
    for line in text.strip().splitlines():
        if line.startswith("# "):
            reason = line[2:]
            continue
        name, kind, default = line.replace("%s", "org.apache.kafka.server.log.remote.metadata.storage").split(" ")
        row = Option(kind, None, reason)
        row.name, row.attribute = name, name.replace(".", "_")
        row.default = _default(row, default)
        yield name, Other(row, reason, refused)


def _default(row: Option, text: str) -> Value:
    return None if text == "-" else row.parse("" if text == '""' else text)


OTHERS: dict[str, Other] = {**dict(_table(ACCEPTED, refused=False)), **dict(_table(REFUSED, refused=True))}

# Options of plugins have free names; the prefix says which option they belong to.
_PREFIXES = (
    ("rlmm.config.", "remote.log.storage.system.enable"),
    ("rsm.config.", "remote.log.storage.system.enable"),
    ("config.providers.", "config.providers"),
)


def screen(pairs: Mapping[str, str], refusals: Refusals) -> tuple[str, ...]:
    """Check options outside the broker's table. Returns a notice of those without effect; rejects the others."""
    idle: list[str] = []
    for name, text in pairs.items():
        with refusals:
            if _has_no_effect(name, text):
                idle.append(name)
    return (f"options without effect in Ottla: {', '.join(sorted(idle))}",) if idle else ()


def _has_no_effect(name: str, text: str) -> bool:
    if _limits_a_listener(name, text):
        return False
    other = OTHERS.get(name) or next((OTHERS[known] for start, known in _PREFIXES if name.startswith(start)), None)
    if other is None and name.startswith(PREFIX):
        raise ConfigError(f"{name}: cannot be set for one listener; only max.connections, ssl.* and sasl.* can")
    if other is None:
        raise unknown(name)
    if other.row.name == name and text_of(other.row.parse(text)) == text_of(other.row.default):
        return False
    if other.refused:
        raise ConfigError(f"{name}: {other.reason}")
    return True


SUCCESSORS: Final = {
    "host.name": "listeners",
    "port": "listeners",
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
}


def unknown(name: str) -> ConfigError:
    """The error for an option that neither Kafka nor Ottla knows, with the nearest known name."""
    from difflib import get_close_matches

    from ottla.config.broker import OPTIONS

    if successor := SUCCESSORS.get(name):
        return ConfigError(f"unknown option {name}: Kafka 3.0 removed it, use {successor}")
    near = get_close_matches(name, [*OPTIONS, *OTHERS], n=1, cutoff=0.75)
    return ConfigError(f"unknown option {name}" + (f": did you mean {near[0]}?" if near else ""))


def _limits_a_listener(name: str, text: str) -> bool:
    """Whether this is listener.name.<name>.max.connections; TLS and SASL options are in `security.py`."""
    if not (name.startswith("listener.name.") and name.endswith(".max.connections")):
        return False
    from ottla.config.broker import OPTIONS

    try:
        OPTIONS["max.connections"].parse(text)
    except ConfigError as error:
        raise ConfigError(str(error).replace("max.connections", name)) from None
    return True
