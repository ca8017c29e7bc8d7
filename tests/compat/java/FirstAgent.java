import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The client of 0.10.2: times and offsets for times are there; headers, idempotence and an admin client are not yet. */
public class FirstAgent extends Agent {
    final String bootstrap;
    final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    FirstAgent(String bootstrap) {
        this.bootstrap = bootstrap;
        Map<String, Object> settings = settings();
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "50");
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) throws Exception {
        new FirstAgent(arguments[0]).serve();
    }

    final Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    ProducerRecord<byte[], byte[]> record(String topic, int partition, Item item) {
        return new ProducerRecord<>(topic, partition, item.timestamp, item.key, item.value);
    }

    String headers(ConsumerRecord<byte[], byte[]> record) {
        return "[]";
    }

    @Override
    String produce(String topic, int partition, String codec, String acks, boolean idempotent, List<Item> items)
        throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(codec + acks + idempotent);
        if (producer == null) {
            Map<String, Object> settings = settings();
            settings.put("compression.type", codec);
            settings.put("acks", acks);
            settings.put("linger.ms", "20");
            settings.put("max.request.size", "2000000");
            if (idempotent) {
                settings.put("enable.idempotence", "true");
            }
            producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
            producers.put(codec + acks + idempotent, producer);
        }
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (Item item : items) {
            futures.add(producer.send(record(topic, partition, item)));
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
        consumer.assign(Collections.singletonList(place));
        if (offset == -2) {
            consumer.seekToBeginning(Collections.singletonList(place));
        } else {
            consumer.seek(place, offset);
        }
        List<String> rows = new ArrayList<>();
        while (rows.size() < count) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(1000).records(place)) {
                if (rows.size() < count) {
                    rows.add(row(record.offset(), record.timestamp(), record.key(), record.value(), headers(record)));
                }
            }
        }
        return rows.toString();
    }

    @Override
    Long offset(String topic, int partition, long timestamp) {
        TopicPartition place = new TopicPartition(topic, partition);
        if (timestamp == -1) {
            return consumer.endOffsets(Collections.singleton(place)).get(place);
        }
        if (timestamp == -2) {
            return consumer.beginningOffsets(Collections.singleton(place)).get(place);
        }
        OffsetAndTimestamp found = consumer.offsetsForTimes(Collections.singletonMap(place, timestamp)).get(place);
        return found == null ? null : found.offset();
    }

    @Override
    int partitions(String topic) throws Exception {
        return consumer.partitionsFor(topic).size();
    }
}
