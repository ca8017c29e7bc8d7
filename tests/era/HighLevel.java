import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.KafkaStream;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * Consumers of Kafka 0.8: they share the partitions among themselves through ZooKeeper, and keep their offsets there.
 *
 * Arguments: ZooKeeper, group, topic. Commands on standard input, one a line: "open NAME", "commit NAME", "close NAME";
 * each is answered by "done". Every record is a line "NAME PARTITION OFFSET VALUE".
 */
public class HighLevel {
    public static void main(String[] arguments) throws Exception {
        Map<String, ConsumerConnector> open = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "open" -> open.put(words[1], open(words[1], arguments[0], arguments[1], arguments[2]));
                case "commit" -> open.get(words[1]).commitOffsets();
                default -> open.remove(words[1]).shutdown();
            }
            say("done");
        }
        Runtime.getRuntime().halt(0);
    }

    static ConsumerConnector open(String name, String zookeeper, String group, String topic) {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", zookeeper);
        settings.put("group.id", group);
        settings.put("consumer.id", name);
        settings.put("auto.offset.reset", "smallest");
        settings.put("auto.commit.enable", "false");
        settings.put("zookeeper.session.timeout.ms", "30000");
        settings.put("rebalance.backoff.ms", "500");
        settings.put("rebalance.max.retries", "100");
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        List<KafkaStream<byte[], byte[]>> streams =
            connector.createMessageStreams(Collections.singletonMap(topic, 1)).get(topic);
        Thread reader = new Thread(() -> {
            for (MessageAndMetadata<byte[], byte[]> one : streams.get(0)) {
                say(name + " " + one.partition() + " " + one.offset() + " " + new String(one.message()));
            }
        });
        reader.setDaemon(true);
        reader.start();
        return connector;
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
