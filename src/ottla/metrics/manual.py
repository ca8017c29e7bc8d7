"""The page of all figures, derived from the catalogue: `docs/metrics.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metrics.catalogue import SECTIONS

if TYPE_CHECKING:
    from ottla.metrics.family import Family

INTRODUCTION = """# Metrics

Written by `make docs` from `src/ottla/metrics/catalogue.py`; do not edit.

Every broker answers HTTP beside Kafka's protocol:

| address | answer |
| --- | --- |
| `/metrics` | all figures as Prometheus text (version 0.0.4; OpenMetrics 1.0 for who asks for it in `Accept`) |
| `/health` | 200 while the process lives and its event loop turns |
| `/ready` | 200 when clients can work with it, else 503; what is missing as JSON |

Ready means: started, logs recovered, and in a cluster registered and told of the controller.

`ottla.metrics.listener` says where: `host:port`, by default `127.0.0.1:auto`. `auto` is port 9404. When that is taken,
as by another broker of this machine, or when the broker's own port is any free one (0), it is any free one. The address
is printed at start and kept in the file `ottla-metrics.address` of the first log folder while the broker runs. `off`
opens nothing. A request must name an address, `localhost`, the machine's name or one of `ottla.metrics.hosts` as its
`Host`, so that no web page can have a browser read it under a name of its own.

`ottla.metrics.topics.max`, `.partitions.max` and `.groups.max` bound how many topics, partitions and offsets of groups
have series of their own, `.clients.max` how many series of clients' own metrics are shown; 0 shows none. What is left
out is counted in `ottla_metrics_left_out`.

`docs/grafana.json` is a dashboard of the most important figures.

```yaml
scrape_configs:
  - job_name: ottla
    static_configs:
      - targets: ["127.0.0.1:9404"]
```
"""
LAG = """## Lag of groups

`ottla_group_lag_records` is exact, and only there where one broker knows both ends: it coordinates the group and leads
the partition. On a broker that stands alone that is everything. In a cluster, the sum over all brokers has some of the
partitions only; this has all of them, from a scrape of all brokers:

```
clamp_min(
    max by (topic, partition) (ottla_partition_high_watermark and ottla_partition_leader == 1)
  - on (topic, partition) group_right max by (group, topic, partition) (ottla_group_committed_offset), 0)
```

A partition for which a group never committed has no series.
"""
SUMS = """## Sums over brokers

A figure is that of one broker. Traffic, requests, `ottla_leaders`, the counts of under-replicated partitions and groups
add up over brokers, for each partition is counted by its leader and each group by its coordinator. `ottla_brokers`,
`ottla_topics` and `ottla_cluster_partitions` are each broker's view of the whole: take the `max`. Bytes of logs are
those of replicas, so they add up to what all disks hold. A counter begins at 0 with each start of a broker, and that of
a topic with each topic of its name.
"""
CLIENTS = """## Metrics that clients push (KIP-714)

Java clients from 3.7 and librdkafka from 2.5 on push their own metrics to brokers that list the two APIs and have a
subscription that matches them. Brokers list them while there is a subscription; a client looks when it connects, so
those that were connected before the first subscription push after they have connected again. With
`ottla.client.metrics=always` brokers list them from the start, with `off` never. A subscription is a resource of the
kind `client-metrics`:

```
kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter --name all \\
    --metrics org.apache.kafka. --interval 10000
kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type client-metrics --entity-name all \\
    --add-config 'metrics=[org.apache.kafka.],interval.ms=10000,match=[client_software_name=librdkafka]'
```

What a client pushed last is shown beside the broker's own figures, one series for each data point: its name with
underscores for dots and `client_` in front (`client_org_apache_kafka_producer_record_send_total`), the labels
`client_instance_id`, `client_id` and the point's own. Sums that only grow are shown as counters; deltas are added up.
A client that has not pushed for three intervals, or says that it ends, is forgotten.
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
