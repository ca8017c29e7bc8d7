import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.ErrorMapping;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The clients of 0.8.2: the SimpleConsumer, which keeps its own offsets, and the first KafkaProducer. Magic 0 only. */
public class SimpleAgent extends Agent {
    private final String bootstrap;
    private final SimpleConsumer consumer;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    SimpleAgent(String bootstrap) {
        this.bootstrap = bootstrap;
        String[] address = bootstrap.split(":");
        consumer = new SimpleConsumer(address[0], Integer.parseInt(address[1]), 30_000, 64 * 1024, "simple");
    }

    public static void main(String[] arguments) throws Exception {
        new SimpleAgent(arguments[0]).serve();
    }

    private static void check(short code) {
        if (code != ErrorMapping.NoError()) {
            throw Errors.forCode(code).exception();
        }
    }

    @Override
    String produce(String topic, int partition, String codec, String acks, boolean idempotent, List<Item> items)
        throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(codec + acks);
        if (producer == null) {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("compression.type", codec);
            settings.put("acks", acks);
            settings.put("linger.ms", "20");
            settings.put("max.request.size", "2000000");
            producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
            producers.put(codec + acks, producer);
        }
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (Item item : items) {
            futures.add(producer.send(new ProducerRecord<>(topic, partition, item.key, item.value)));
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> future : futures) {
            offsets.add(future.get().offset());
        }
        return offsets.toString();
    }

    @Override
    String consume(String topic, int partition, long offset, int count) {
        long next = offset == -2 ? offset(topic, partition, -2) : offset;
        List<String> rows = new ArrayList<>();
        while (rows.size() < count) {
            FetchResponse answer = consumer.fetch(
                new FetchRequestBuilder().clientId("simple").addFetch(topic, partition, next, 1 << 20).maxWait(50).build());
            check(answer.errorCode(topic, partition));
            for (MessageAndOffset found : answer.messageSet(topic, partition)) {
                if (found.offset() >= next && rows.size() < count) {  // a compressed set begins before what was asked for
                    found.message().ensureValid();
                    rows.add(row(found.offset(), null, bytes(found.message().key()), bytes(found.message().payload()), "[]"));
                    next = found.nextOffset();
                }
            }
        }
        return rows.toString();
    }

    private static byte[] bytes(java.nio.ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return data;
    }

    @Override
    Long offset(String topic, int partition, long timestamp) {
        TopicAndPartition place = new TopicAndPartition(topic, partition);
        OffsetResponse answer = consumer.getOffsetsBefore(new OffsetRequest(
            Collections.singletonMap(place, new PartitionOffsetRequestInfo(timestamp, 1)), (short) 0, "simple"));
        check(answer.errorCode(topic, partition));
        long[] offsets = answer.offsets(topic, partition);
        return offsets.length == 0 ? null : offsets[0];
    }

    @Override
    int partitions(String topic) {
        TopicMetadata found = consumer.send(new TopicMetadataRequest(Collections.singletonList(topic))).topicsMetadata().get(0);
        check(found.errorCode());
        return found.partitionsMetadata().size();
    }
}
