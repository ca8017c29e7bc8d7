import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.Security;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes and reads a record with each set of options on standard input, and prints what came of it: see test_matrix.py. */
public class Doors {
    public static void main(String[] arguments) throws Exception {
        Security.setProperty("jdk.tls.disabledAlgorithms", ""); // this Java would not even offer an old TLS
        Map<String, Properties> cases = read();
        String tokens = cases.values().stream().map(one -> one.getProperty("sasl.oauthbearer.token.endpoint.url", ""))
            .filter(url -> !url.isEmpty()).distinct().collect(Collectors.joining(","));
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", tokens);
        ExecutorService pool = Executors.newFixedThreadPool(2);
        cases.forEach((name, options) -> pool.submit(() -> {
            String outcome = attempt(name, options);
            synchronized (System.out) {
                System.out.println(name + "\t" + outcome);
            }
        }));
        pool.shutdown();
        pool.awaitTermination(5, java.util.concurrent.TimeUnit.MINUTES);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static Map<String, Properties> read() throws Exception {
        Map<String, Properties> cases = new LinkedHashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            Properties options = new Properties();
            for (int index = 1; index < words.length; index++) {
                int equals = words[index].indexOf('=');
                options.put(words[index].substring(0, equals), words[index].substring(equals + 1));
            }
            cases.put(words[0], options);
        }
        return cases;
    }

    static String attempt(String name, Properties options) {
        Properties own = new Properties();
        own.putAll(options);
        own.put("max.block.ms", "120000");
        own.put("delivery.timeout.ms", "120000");
        own.put("request.timeout.ms", "60000");
        own.put("linger.ms", "0");
        String topic = options.getProperty("test.topic");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(own, new StringSerializer(), new StringSerializer())) {
            long offset = producer.send(new ProducerRecord<>(topic, 0, name, name)).get().offset();
            return readBack(own, topic, offset, name) ? "ok" : "lost";
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            StringBuilder said = new StringBuilder();
            for (Throwable one = cause; one != null; one = one.getCause()) {
                said.append(one.getClass().getSimpleName()).append(": ").append(one.getMessage()).append(" | ");
            }
            return said.toString().replace('\n', ' ').replace('\t', ' ');
        }
    }

    static boolean readBack(Properties options, String topic, long offset, String value) {
        Properties own = new Properties();
        own.putAll(options);
        own.put("enable.auto.commit", "false");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            for (int turn = 0; turn < 120; turn++) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    return record.value().equals(value);
                }
            }
            return false;
        }
    }
}
