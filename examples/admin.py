"""Create a topic, change it, describe it and delete it, with confluent-kafka's admin client.

The same in the shell: `ottla topics create`, `alter`, `describe`, `delete` and `ottla configs set`.

    python admin.py localhost:9092

Prints:

    created example-clicks
    it has 4 partitions now
    it keeps records for 3600000 ms
    deleted example-clicks
"""

import sys

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
TOPIC = "example-clicks"


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])[TOPIC].result()
    print(f"created {TOPIC}")

    admin.create_partitions([NewPartitions(TOPIC, 4)])[TOPIC].result()
    described = admin.list_topics(TOPIC, timeout=30).topics[TOPIC]
    print(f"it has {len(described.partitions)} partitions now")

    change = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result()
    options = admin.describe_configs([resource])[resource].result()
    print(f"it keeps records for {options['retention.ms'].value} ms")

    admin.delete_topics([TOPIC])[TOPIC].result()
    print(f"deleted {TOPIC}")


if __name__ == "__main__":
    main()
