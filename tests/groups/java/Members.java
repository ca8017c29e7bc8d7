import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.StaleMemberEpochException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of Apache Kafka's own client; commands and events are those of hosts/program.py. */
public class Members {
    static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("leave")) {
                members.remove(words[1]).leaving = true;
                continue;
            }
            Map<String, String> options = new HashMap<>();
            for (int i = 2; i < words.length; i++) {
                options.put(words[i].substring(0, words[i].indexOf('=')), words[i].substring(words[i].indexOf('=') + 1));
            }
            Member member = new Member(arguments[0], words[1], options);
            members.put(words[1], member);
            member.start();
        }
        Runtime.getRuntime().halt(0);
    }

    static class Member extends Thread implements ConsumerRebalanceListener {
        final String group;
        final String[] topics;
        final KafkaConsumer<byte[], byte[]> consumer;
        volatile boolean leaving;

        Member(String bootstrap, String name, Map<String, String> options) {
            super(name);
            group = options.get("group");
            topics = options.get("topics").split(",");
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", group);
            settings.put("client.id", name);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            settings.put("fetch.max.wait.ms", "50");
            settings.put("retry.backoff.ms", "50");
            settings.put("metadata.recovery.strategy", "none"); // else it forgets its topics while a broker restarts, and rejoins
            settings.put("group.protocol", options.get("protocol"));
            if (options.containsKey("instance")) {
                settings.put("group.instance.id", options.get("instance"));
            }
            if (options.get("protocol").equals("consumer")) {
                settings.put("group.remote.assignor", options.get("assignor"));
            } else {
                settings.put("partition.assignment.strategy", ASSIGNORS.get(options.get("assignor")));
                settings.put("session.timeout.ms", options.get("session_ms"));
                settings.put("heartbeat.interval.ms", options.get("heartbeat_ms"));
            }
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void run() {
            try {
                consumer.subscribe(List.of(topics), this);
                while (!leaving) {
                    try {
                        handle(consumer.poll(Duration.ofMillis(100)));
                    } catch (UnknownMemberIdException | StaleMemberEpochException expelled) {
                        // While it looked up committed offsets, as a member that slept too long; the next poll joins again.
                    } catch (RetriableException failure) {
                        emit("raised", ", \"error\": " + quote(failure.toString()));
                    }
                }
                consumer.close();
                emit("left", "");
            } catch (Throwable failure) {
                failure.printStackTrace();
                emit("failed", ", \"error\": " + quote(failure.toString()));
            }
        }

        void handle(ConsumerRecords<byte[], byte[]> records) {
            if (records.isEmpty()) {
                return;
            }
            Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
            Map<String, Long> offsets = new TreeMap<>();
            for (TopicPartition place : records.partitions()) {
                List<ConsumerRecord<byte[], byte[]>> some = records.records(place);
                long last = some.get(some.size() - 1).offset();
                emit("polled", ", \"part\": " + quote(place.toString()) + ", \"first\": " + some.get(0).offset()
                    + ", \"last\": " + last + ", \"count\": " + some.size());
                next.put(place, new OffsetAndMetadata(last + 1));
                offsets.put(quote(place.toString()), last + 1);
            }
            String committed = ", \"offsets\": " + offsets.toString().replace('=', ':');
            emit("committing", committed);
            try {
                consumer.commitSync(next);
                emit("committed", committed);
            } catch (KafkaException failure) {
                emit("refused", committed + ", \"error\": " + quote(failure.getClass().getSimpleName()));
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            emit("assigned", parts(places) + ", \"generation\": " + consumer.groupMetadata().generationId());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            emit("revoked", parts(places));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> places) {
            emit("lost", parts(places));
        }

        static String parts(Collection<TopicPartition> places) {
            TreeSet<String> names = new TreeSet<>();
            places.forEach(place -> names.add(quote(place.toString())));
            return ", \"parts\": " + names;
        }

        void emit(String what, String facts) {
            String line = "{\"at\": " + System.nanoTime() + ", \"group\": " + quote(group) + ", \"member\": "
                + quote(getName()) + ", \"what\": " + quote(what) + facts + "}";
            synchronized (System.out) {
                System.out.println(line);
                System.out.flush();
            }
        }

        static String quote(String text) {
            return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
        }
    }
}
