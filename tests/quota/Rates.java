import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/** Lines "rate|bucket samples seconds limit" begin a story, lines "milliseconds value" go on with it: what Apache Kafka measures. */
public class Rates {
    public static void main(String[] arguments) throws Exception {
        Rate rate = null;
        TokenBucket bucket = null;
        MetricConfig config = null;
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ");
            if (words.length == 4) {
                rate = words[0].equals("rate") ? new Rate() : null;
                bucket = new TokenBucket();
                config = new MetricConfig().samples(Integer.parseInt(words[1]))
                    .timeWindow(Long.parseLong(words[2]), TimeUnit.SECONDS).quota(Quota.upperBound(Double.parseDouble(words[3])));
                continue;
            }
            long now = Long.parseLong(words[0]);
            double value = Double.parseDouble(words[1]);
            if (rate != null) {
                rate.record(config, value, now);
                out.append(rate.measure(config, now)).append(' ').append(rate.windowSize(config, now)).append('\n');
            } else {
                bucket.record(config, value, now);
                out.append(bucket.measure(config, now)).append(" 0\n");
            }
        }
        System.out.print(out);
    }
}
