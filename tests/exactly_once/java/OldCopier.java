import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The same with the clients of 0.11 and later, before groups took part in transactions: a copier has partitions of its
 * own, by assignment, and its transactional id alone keeps a second one of its name out. A producer that met an error it
 * cannot abort is made anew, as the manuals of the time say.
 *
 * Arguments: bootstrap, source, target, group, transactional id, seed, partitions by commas.
 */
public class OldCopier {
    final String bootstrap;
    final String source;
    final String target;
    final String group;
    final String id;
    final Random random;
    final List<TopicPartition> places = new ArrayList<>();
    KafkaConsumer<byte[], byte[]> consumer;
    KafkaProducer<byte[], byte[]> producer;

    OldCopier(String[] arguments) {
        bootstrap = arguments[0];
        source = arguments[1];
        target = arguments[2];
        group = arguments[3];
        id = arguments[4];
        random = new Random(Long.parseLong(arguments[5]));
        for (String index : arguments[6].split(",")) {
            places.add(new TopicPartition(source, Integer.parseInt(index)));
        }
    }

    public static void main(String[] arguments) {
        try {
            new OldCopier(arguments).run();
        } catch (ProducerFencedException fenced) {
            System.out.println("fenced " + fenced.getClass().getSimpleName());
            Runtime.getRuntime().halt(3);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    void open() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", id);
        settings.put("reconnect.backoff.max.ms", "200");
        Map<String, Object> producing = new HashMap<>(settings);
        producing.put("transactional.id", id);
        producing.put("transaction.timeout.ms", "20000");
        producing.put("linger.ms", "2");
        producing.put("retries", Integer.MAX_VALUE);
        producer = new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions(); // ends what an earlier one of this name left, before its offsets are asked for
        Map<String, Object> consuming = new HashMap<>(settings);
        consuming.put("group.id", group);
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("enable.auto.commit", "false");
        consuming.put("isolation.level", "read_committed");
        consuming.put("max.poll.records", "20");
        consuming.put("fetch.max.wait.ms", "50");
        consumer = new KafkaConsumer<>(consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(places);
        rewind();
    }

    void run() {
        while (producer == null) {
            try {
                open();
            } catch (TimeoutException again) {
                close();
            }
        }
        System.out.println("ready");
        System.out.println("assigned " + places.size());
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(100);
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
            producer.sendOffsetsToTransaction(next, group);
            if (random.nextInt(8) == 0) {
                producer.flush();
                giveUp("on purpose");
            } else {
                producer.commitTransaction();
                System.out.println("committed " + records.count());
            }
        } catch (ProducerFencedException fenced) {
            throw fenced;
        } catch (KafkaException failure) {
            giveUp(failure.toString());
        }
    }

    void giveUp(String why) {
        try {
            producer.abortTransaction();
            System.out.println("aborted " + why);
            rewind();
        } catch (KafkaException failure) {
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                if (cause instanceof ProducerFencedException) {
                    throw (ProducerFencedException) cause;
                }
            }
            System.out.println("renewed " + failure);
            close();
            run();
        }
    }

    void close() {
        if (producer != null) {
            producer.close();
        }
        if (consumer != null) {
            consumer.close();
        }
        producer = null;
        consumer = null;
    }

    void rewind() {
        for (TopicPartition place : places) {
            OffsetAndMetadata known = consumer.committed(place);
            if (known == null) {
                consumer.seek(place, 0);
            } else {
                consumer.seek(place, known.offset());
            }
        }
    }
}
