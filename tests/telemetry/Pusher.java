import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A Java producer that sends so many records, waits for its metrics to be asked for, says its instance id, and goes on
 * line by line: it ends with its standard input. */
public class Pusher {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> options =
            Map.of("bootstrap.servers", arguments[0], "client.id", "java-pusher", "enable.metrics.push", "true");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int at = 0; at < Integer.parseInt(arguments[2]); at++) {
                producer.send(new ProducerRecord<>(arguments[1], new byte[100])).get();
            }
            System.out.println(producer.clientInstanceId(Duration.ofSeconds(60)));
            System.out.flush();
            while (System.in.read() >= 0) {
                // until it ends
            }
        }
    }
}
