import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** What Apache Kafka's assignors make of the cases in a file; see test_assignors.py for its lines. */
public class Assignors {
    private static final Map<Uuid, Integer> sizes = new HashMap<>();
    private static final Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
    private static final Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
    private static final Set<Set<Uuid>> subscriptions = new java.util.HashSet<>();

    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "topic" -> sizes.put(topic(words[1]), Integer.parseInt(words[2]));
                case "member" -> member(words);
                case "assign" -> assign(words[1].equals("range") ? new RangeAssignor() : new UniformAssignor());
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static Uuid topic(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static List<String> split(String text, String by) {
        return text.equals("-") ? List.of() : List.of(text.split(by));
    }

    private static void member(String[] words) {
        Set<Uuid> topics = new TreeSet<>();
        for (String number : split(words[3], ",")) topics.add(topic(number));
        Map<Uuid, Set<Integer>> part = new TreeMap<>();
        for (String owned : split(words[4], ";")) {
            String[] pair = owned.split(":");
            for (String index : pair[1].split(",")) {
                part.computeIfAbsent(topic(pair[0]), id -> new TreeSet<>()).add(Integer.parseInt(index));
                owners.computeIfAbsent(topic(pair[0]), id -> new HashMap<>()).put(Integer.parseInt(index), words[1]);
            }
        }
        Optional<String> instance = words[2].equals("-") ? Optional.empty() : Optional.of(words[2]);
        subscriptions.add(topics);
        members.put(words[1], new MemberSubscriptionAndAssignmentImpl(
            Optional.empty(), instance, topics, new Assignment(part)));
    }

    private static void assign(ConsumerGroupPartitionAssignor assignor) {
        SubscriptionType type =
            subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment made = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return sizes.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        });
        for (String member : members.keySet()) {
            MemberAssignment part = made.members().get(member);
            List<String> owned = new ArrayList<>();
            if (part != null) {
                for (Map.Entry<Uuid, Set<Integer>> one : new TreeMap<>(part.partitions()).entrySet()) {
                    List<String> indexes = new ArrayList<>();
                    for (Integer index : new TreeSet<>(one.getValue())) indexes.add(index.toString());
                    if (!indexes.isEmpty()) {
                        owned.add(one.getKey().getLeastSignificantBits() + ":" + String.join(",", indexes));
                    }
                }
            }
            System.out.println(member + " " + (owned.isEmpty() ? "-" : String.join(";", owned)));
        }
        System.out.println("assigned");
        sizes.clear();
        members.clear();
        owners.clear();
        subscriptions.clear();
    }
}
