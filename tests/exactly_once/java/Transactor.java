import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactional producers of any release since 0.11, driven by the lines of transactors.py. */
public class Transactor {
    static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer = "ok";
            try {
                run(arguments[0], line.split("\t"));
            } catch (Throwable failure) {
                StringBuilder names = new StringBuilder("failed");
                for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                    names.append(' ').append(cause.getClass().getSimpleName());
                }
                answer = names.toString();
            }
            System.out.println(answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static void run(String bootstrap, String[] words) throws Throwable {
        KafkaProducer<String, String> producer = PRODUCERS.get(words[1]);
        switch (words[0]) {
            case "open":
                producer = open(bootstrap, words[2], words[3]);
                producer.initTransactions();
                PRODUCERS.put(words[1], producer);
                break;
            case "begin":
                producer.beginTransaction();
                break;
            case "send":
                producer.send(new ProducerRecord<>(words[2], Integer.parseInt(words[3]), null, words[4])).get();
                break;
            case "offsets":
                offsets(producer, words[2], Collections.singletonMap(
                    new TopicPartition(words[3], Integer.parseInt(words[4])),
                    new OffsetAndMetadata(Long.parseLong(words[5]))));
                break;
            case "commit":
                producer.commitTransaction();
                break;
            case "abort":
                producer.abortTransaction();
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static KafkaProducer<String, String> open(String bootstrap, String id, String timeout) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", timeout);
        settings.put("retries", Integer.MAX_VALUE);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** By the group's metadata where the release has it (since 2.5), otherwise by its name. */
    static void offsets(KafkaProducer<String, String> producer, String group,
                        Map<TopicPartition, OffsetAndMetadata> offsets) throws Throwable {
        try {
            Class<?> metadata;
            try {
                metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            } catch (ClassNotFoundException old) {
                KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class)
                    .invoke(producer, offsets, group);
                return;
            }
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata)
                .invoke(producer, offsets, metadata.getConstructor(String.class).newInstance(group));
        } catch (InvocationTargetException failure) {
            throw failure.getCause();
        }
    }
}
