"""Generates `docs/metrics.md` from the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metrics.catalogue import SECTIONS

if TYPE_CHECKING:
    from ottla.metrics.family import Family

INTRODUCTION = """# Metrics

Written by `make docs` from `src/ottla/metrics/catalogue.py`; do not edit.

Besides Kafka's protocol, every broker serves HTTP:

| path | response |
| --- | --- |
| `/metrics` | all metrics as Prometheus text (version 0.0.4, or OpenMetrics 1.0 if `Accept` asks for it) |
| `/health` | 200 while the process lives and its event loop runs |
| `/ready` | 200 if clients can use the broker, else 503; what is missing as JSON |

Ready means: the broker has started, its logs are recovered, and in a cluster it is registered and knows the controller.

`ottla.metrics.listener` is the address: `host:port`, by default `127.0.0.1:auto`. `auto` is port 9404, or any free port
if 9404 is taken (for example by another broker on the machine) or the broker's own port is 0. The address is printed at
start and kept in the file `ottla-metrics.address` of the first log folder while the broker runs. `off` disables the
endpoint. The `Host` of a request must be an IP address, `localhost`, the machine's name or one of
`ottla.metrics.hosts`. This keeps web pages from reading the metrics through a browser (DNS rebinding).

`ottla.metrics.topics.max`, `.partitions.max` and `.groups.max` limit how many topics, partitions and offsets of groups
have their own series, `.clients.max` how many series pushed by clients are shown; 0 shows none. What is left out is
counted in `ottla_metrics_left_out`.

`docs/grafana.json` is a dashboard of the most important metrics.

```yaml
scrape_configs:
  - job_name: ottla
    static_configs:
      - targets: ["127.0.0.1:9404"]
```
"""
LAG = """## Lag of groups

`ottla_group_lag_records` is exact. It exists only where one broker knows both offsets, because it coordinates the group
and leads the partition. A standalone broker has it for all partitions. In a cluster, the sum over all brokers covers
only some of the partitions. This query covers all of them, if all brokers are scraped:

```
clamp_min(
    max by (topic, partition) (ottla_partition_high_watermark and ottla_partition_leader == 1)
  - on (topic, partition) group_right max by (group, topic, partition) (ottla_group_committed_offset), 0)
```

A partition for which a group has never committed has no series.
"""
SUMS = """## Sums over brokers

Each metric describes one broker. Traffic, requests, `ottla_leaders` and the counts of under-replicated partitions and
groups can be summed over brokers, because each partition is counted by its leader and each group by its coordinator.
`ottla_brokers`, `ottla_topics` and `ottla_cluster_partitions` are each broker's view of the whole cluster: take the
`max`. Log sizes are those of replicas, so they add up to what all disks hold. Counters start at 0 when a broker starts;
those of a topic also when the topic is recreated.
"""
CLIENTS = """## Metrics that clients push (KIP-714)

Java clients since 3.7 and librdkafka since 2.5 push their own metrics to brokers that advertise the two telemetry APIs
and have a matching subscription. Brokers advertise these APIs while a subscription exists. A client checks this when it
connects, so clients that were connected before the first subscription push only after they reconnect. With
`ottla.client.metrics=always` brokers always advertise the APIs, with `off` never. A subscription is a resource of type
`client-metrics`:

```
kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter --name all \\
    --metrics org.apache.kafka. --interval 10000
kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type client-metrics --entity-name all \\
    --add-config 'metrics=[org.apache.kafka.],interval.ms=10000,match=[client_software_name=librdkafka]'
```

The last push of each client is shown next to the broker's own metrics, one series per data point. The name has
underscores for dots and the prefix `client_` (`client_org_apache_kafka_producer_record_send_total`); the labels are
`client_instance_id`, `client_id` and the point's own. Monotonic sums are shown as counters; deltas are added up. A
client that has not pushed for three intervals, or announces its end, is removed.
"""


def page() -> str:
    parts = [INTRODUCTION]
    for title, families in SECTIONS.items():
        parts += [
            f"## {title}\n",
            "| name | kind | labels | meaning | Kafka's name |",
            "| --- | --- | --- | --- | --- |",
        ]
        parts += [row(family) for family in families]
        parts.append("")
    return "\n".join([*parts, LAG, SUMS, CLIENTS])


def row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    kafka = f"`{family.kafka}`" if family.kafka else ""
    return f"| `{family.name}` | {family.kind} | {labels} | {family.meaning} | {kafka} |"
