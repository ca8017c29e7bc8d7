import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The client of Apache Kafka 4. */
public class NewAgent extends Agent {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Admin admin;

    NewAgent(String bootstrap) {
        this.bootstrap = bootstrap;
        consumer = new KafkaConsumer<>(
            Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false", "fetch.max.wait.ms", "50"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        new NewAgent(arguments[0]).serve();
    }

    @Override
    String produce(String topic, int partition, String codec, String acks, boolean idempotent, List<Item> items)
        throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(codec + acks + idempotent, key ->
            new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "acks", acks, "linger.ms", "20",
                    "enable.idempotence", String.valueOf(idempotent), "max.request.size", "2000000"),
                new ByteArraySerializer(), new ByteArraySerializer()));
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (Item item : items) {
            ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(topic, partition, item.timestamp, item.key, item.value);
            for (int i = 0; i < item.names.size(); i++) {
                record.headers().add(item.names.get(i), item.values.get(i));
            }
            futures.add(producer.send(record));
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> future : futures) {
            offsets.add(future.get().offset());
        }
        return offsets.toString();
    }

    @Override
    String consume(String topic, int partition, long offset, int count) {
        TopicPartition place = new TopicPartition(topic, partition);
        consumer.assign(List.of(place));
        if (offset == -2) {
            consumer.seekToBeginning(List.of(place));
        } else {
            consumer.seek(place, offset);
        }
        List<String> rows = new ArrayList<>();
        while (rows.size() < count) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1)).records(place)) {
                if (rows.size() < count) {
                    List<String> headers = new ArrayList<>();
                    for (Header header : record.headers()) {
                        headers.add("[" + quote(header.key()) + ", " + hex(header.value()) + "]");
                    }
                    rows.add(row(record.offset(), record.timestamp(), record.key(), record.value(), headers.toString()));
                }
            }
        }
        return rows.toString();
    }

    @Override
    Long offset(String topic, int partition, long timestamp) {
        TopicPartition place = new TopicPartition(topic, partition);
        if (timestamp == -1) {
            return consumer.endOffsets(Set.of(place)).get(place);
        }
        if (timestamp == -2) {
            return consumer.beginningOffsets(Set.of(place)).get(place);
        }
        OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, timestamp)).get(place);
        return found == null ? null : found.offset();
    }

    @Override
    int partitions(String topic) throws Exception {
        return admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    @Override
    void create(String topic, int partitions, Map<String, String> configs) throws Exception {
        admin.createTopics(Set.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
    }

    @Override
    void delete(String topic) throws Exception {
        admin.deleteTopics(Set.of(topic)).all().get();
    }

    @Override
    void grow(String topic, int total) throws Exception {
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(total))).all().get();
    }

    @Override
    Map<String, String> configs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> found = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(Set.of(resource)).all().get().get(resource).entries()) {
            found.put(entry.name(), entry.value());
        }
        return found;
    }

    @Override
    void alter(String topic, Map<String, String> configs) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        configs.forEach((name, value) ->
            operations.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), operations)).all().get();
    }

    @Override
    long trim(String topic, int partition, long offset) throws Exception {
        TopicPartition place = new TopicPartition(topic, partition);
        return admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(offset)))
            .lowWatermarks().get(place).get().lowWatermark();
    }
}
