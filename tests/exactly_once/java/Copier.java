import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies one topic into another, partition by partition, in transactions that hold the records and the offsets; some it
 * aborts on purpose. Group members share the partitions, and the group's metadata travels with the offsets.
 *
 * Arguments: bootstrap, source, target, group, transactional id, seed. Prints what copier.py reads.
 */
public class Copier {
    final KafkaConsumer<byte[], byte[]> consumer;
    final KafkaProducer<byte[], byte[]> producer;
    final String source;
    final String target;
    final Random random;

    Copier(String bootstrap, String source, String target, String group, String id, long seed) {
        this.source = source;
        this.target = target;
        random = new Random(seed);
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", id);
        settings.put("reconnect.backoff.max.ms", "200");
        Map<String, Object> consuming = new HashMap<>(settings);
        consuming.put("group.id", group);
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("enable.auto.commit", "false");
        consuming.put("isolation.level", "read_committed");
        consuming.put("session.timeout.ms", "3000");
        consuming.put("heartbeat.interval.ms", "300");
        consuming.put("max.poll.records", "20");
        consuming.put("fetch.max.wait.ms", "50");
        consumer = new KafkaConsumer<>(consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Map<String, Object> producing = new HashMap<>(settings);
        producing.put("transactional.id", id);
        producing.put("transaction.timeout.ms", "20000");
        producing.put("linger.ms", "2");
        producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer());
    }

    public static void main(String[] arguments) {
        Copier copier = new Copier(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
            Long.parseLong(arguments[5]));
        try {
            copier.run();
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            System.out.println("fenced " + fenced.getClass().getSimpleName());
            Runtime.getRuntime().halt(3);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    void run() {
        producer.initTransactions();
        System.out.println("ready");
        consumer.subscribe(List.of(source), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> places) {
                System.out.println("assigned " + places.size());
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> places) {
            }
        });
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            if (!records.isEmpty()) {
                copy(records);
            }
        }
    }

    void copy(ConsumerRecords<byte[], byte[]> records) {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
                next.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
            if (random.nextInt(8) == 0) {
                producer.flush();
                giveUp("on purpose");
            } else {
                producer.commitTransaction();
                System.out.println("committed " + records.count());
            }
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException
            | UnsupportedVersionException | FencedInstanceIdException fatal) {
            throw fatal;
        } catch (KafkaException failure) {
            giveUp(failure.toString());
        }
    }

    /** Abort, and read again what was not copied. */
    void giveUp(String why) {
        producer.abortTransaction();
        System.out.println("aborted " + why);
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata known = committed.get(place);
            if (known == null) {
                consumer.seekToBeginning(List.of(place));
            } else {
                consumer.seek(place, known.offset());
            }
        }
    }
}
