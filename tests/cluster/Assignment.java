import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

/** Arguments "1:a,2:b;partitions;replicas;start;first" (no rack: "1:,2:"): what Apache Kafka assigns, a line each. */
public class Assignment {
    public static void main(String[] arguments) {
        for (String argument : arguments) {
            String[] parts = argument.split(";");
            List<BrokerMetadata> brokers = new ArrayList<>();
            for (String broker : parts[0].split(",")) {
                String[] pair = broker.split(":", 2);
                brokers.add(new BrokerMetadata(Integer.parseInt(pair[0]), pair[1].isEmpty() ? Optional.empty() : Optional.of(pair[1])));
            }
            int partitions = Integer.parseInt(parts[1]), first = Integer.parseInt(parts[4]);
            Map<Integer, List<Integer>> assigned = AdminUtils.assignReplicasToBrokers(
                brokers, partitions, Integer.parseInt(parts[2]), Integer.parseInt(parts[3]), first);
            StringBuilder line = new StringBuilder();
            for (int index = first; index < first + partitions; index++) line.append(assigned.get(index)).append(" ");
            System.out.println(line.toString().trim());
        }
    }
}
