import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;

/** The client of 1.1 to 3: headers, idempotence, an admin client whose alterConfigs replaces all that was set before. */
public class OldAgent extends FirstAgent {
    private final AdminClient admin;

    OldAgent(String bootstrap) {
        super(bootstrap);
        admin = AdminClient.create(settings());
    }

    public static void main(String[] arguments) throws Exception {
        new OldAgent(arguments[0]).serve();
    }

    @Override
    ProducerRecord<byte[], byte[]> record(String topic, int partition, Item item) {
        ProducerRecord<byte[], byte[]> record = super.record(topic, partition, item);
        for (int i = 0; i < item.names.size(); i++) {
            record.headers().add(item.names.get(i), item.values.get(i));
        }
        return record;
    }

    @Override
    String headers(ConsumerRecord<byte[], byte[]> record) {
        List<String> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add("[" + quote(header.key()) + ", " + hex(header.value()) + "]");
        }
        return headers.toString();
    }

    @Override
    int partitions(String topic) throws Exception {
        return admin.describeTopics(Collections.singleton(topic)).all().get().get(topic).partitions().size();
    }

    @Override
    void create(String topic, int partitions, Map<String, String> configs) throws Exception {
        NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(configs);
        admin.createTopics(Collections.singleton(wanted)).all().get();
    }

    @Override
    void delete(String topic) throws Exception {
        admin.deleteTopics(Collections.singleton(topic)).all().get();
    }

    @Override
    void grow(String topic, int total) throws Exception {
        admin.createPartitions(Collections.singletonMap(topic, NewPartitions.increaseTo(total))).all().get();
    }

    @Override
    Map<String, String> configs(String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> found = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource).entries()) {
            found.put(entry.name(), entry.value());
        }
        return found;
    }

    @Override
    void alter(String topic, Map<String, String> configs) throws Exception {
        List<ConfigEntry> entries = new ArrayList<>();
        configs.forEach((name, value) -> entries.add(new ConfigEntry(name, value)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.alterConfigs(Collections.singletonMap(resource, new Config(entries))).all().get();
    }

    @Override
    long trim(String topic, int partition, long offset) throws Exception {
        TopicPartition place = new TopicPartition(topic, partition);
        return admin.deleteRecords(Collections.singletonMap(place, RecordsToDelete.beforeOffset(offset)))
            .lowWatermarks().get(place).get().lowWatermark();
    }
}
