/*
 * Generates load with Apache Kafka's Java client. One JVM serves the whole run, so both brokers get the same warm client.
 * Reads one command per line from stdin, `name key=value ...`, and answers with one line of JSON. Runs as a single source
 * file. Reads the broker's CPU time from /proc at the start and the end of the measured time; connecting is not included.
 */

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public class Load {
    static final int SAMPLE_EVERY = 32;
    static final int SAMPLES_MAX = 1 << 20;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            Map<String, String> options = new HashMap<>();
            for (int i = 1; i < words.length; i++) {
                String[] pair = words[i].split("=", 2);
                options.put(pair[0], pair[1]);
            }
            try {
                System.out.println(switch (words[0]) {
                    case "produce" -> produce(options);
                    case "consume" -> consume(options);
                    case "latency" -> latency(options);
                    default -> throw new IllegalArgumentException("no such command: " + words[0]);
                });
            } catch (Exception error) {
                System.out.println("{\"error\": \"" + error.toString().replaceAll("[\"\\\\\n]", " ") + "\"}");
            }
        }
    }

    /** Latencies in nanoseconds. Drops those that do not fit; no row has that many. */
    static class Samples {
        private final long[] values = new long[SAMPLES_MAX];
        private int count = 0;

        synchronized void add(long value) {
            if (count < SAMPLES_MAX) values[count++] = value;
        }

        String json() {
            Arrays.sort(values, 0, count);
            return "\"p50_ms\": " + at(0.5) + ", \"p99_ms\": " + at(0.99) + ", \"p999_ms\": " + at(0.999);
        }

        private double at(double quantile) {
            return count == 0 ? -1 : values[(int) Math.min(count - 1, Math.floor(count * quantile))] / 1e6;
        }
    }

    /** User and system time of the process in clock ticks of 10 ms, including threads that have ended. */
    static long ticks(Map<String, String> options) throws IOException {
        String stat = Files.readString(Path.of("/proc", options.get("pid"), "stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return Long.parseLong(fields[11]) + Long.parseLong(fields[12]);
    }

    static String result(long bytes, long count, long nanos, long ticks, Samples samples) {
        return "{\"bytes\": " + bytes + ", \"count\": " + count + ", \"seconds\": " + nanos / 1e9 + ", \"cpu_s\": " + ticks / 100.0
            + (samples == null ? "" : ", " + samples.json()) + "}";
    }

    /** Uses TLS if the command names a certificate authority. */
    static void secure(Properties config, Map<String, String> options) {
        if (options.get("ca") == null) return;
        config.put("security.protocol", "SSL");
        config.put("ssl.truststore.type", "PEM");
        config.put("ssl.truststore.location", options.get("ca"));
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, String> options, String linger) {
        Properties config = new Properties();
        config.put("bootstrap.servers", options.get("bootstrap"));
        secure(config, options);
        config.put("acks", options.get("acks"));
        config.put("batch.size", options.get("batch"));
        config.put("compression.type", options.get("codec"));
        if (linger != null) config.put("linger.ms", linger);
        config.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        return new KafkaProducer<>(config);
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, String> options) {
        Properties config = new Properties();
        config.put("bootstrap.servers", options.get("bootstrap"));
        secure(config, options);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        return new KafkaConsumer<>(config);
    }

    /** Sends as many records as the client can for the given time, then waits for the last acknowledgement. */
    static String produce(Map<String, String> options) throws Exception {
        int size = Integer.parseInt(options.get("size"));
        String topic = options.get("topic");
        byte[][] values = lines(size);
        Samples samples = new Samples();
        AtomicLong failures = new AtomicLong();
        Callback plain = (metadata, error) -> {
            if (error != null) failures.incrementAndGet();
        };
        try (KafkaProducer<byte[], byte[]> producer = producer(options, null)) {
            producer.partitionsFor(topic);
            producer.send(new ProducerRecord<>(topic, values[0])).get();
            long before = ticks(options), start = System.nanoTime(), now = start, count = 0;
            long end = start + (long) (Double.parseDouble(options.get("seconds")) * 1e9);
            while (now < end) {
                long sent = now;
                Callback callback = count % SAMPLE_EVERY != 0 ? plain : (metadata, error) -> {
                    if (error != null) failures.incrementAndGet();
                    else samples.add(System.nanoTime() - sent);
                };
                producer.send(new ProducerRecord<>(topic, values[(int) (count++ % values.length)]), callback);
                now = System.nanoTime();
            }
            producer.flush();
            long nanos = System.nanoTime() - start, used = ticks(options) - before;
            if (failures.get() > 0) throw new IllegalStateException(failures.get() + " records were not acknowledged");
            return result(count * size, count, nanos, used, samples);
        }
    }

    /** Reads all partitions from the beginning, again and again, for the given time. */
    static String consume(Map<String, String> options) throws Exception {
        List<TopicPartition> assigned = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(options.get("partitions")); i++) assigned.add(new TopicPartition(options.get("topic"), i));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(options)) {
            consumer.assign(assigned);
            long total = consumer.endOffsets(assigned).values().stream().mapToLong(Long::longValue).sum();
            consumer.seekToBeginning(assigned);
            while (consumer.poll(Duration.ofMillis(100)).isEmpty());
            consumer.seekToBeginning(assigned);
            long before = ticks(options), start = System.nanoTime(), bytes = 0, count = 0, round = 0;
            long end = start + (long) (Double.parseDouble(options.get("seconds")) * 1e9);
            while (System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    bytes += record.value().length;
                    count++;
                    round++;
                }
                if (round >= total) {
                    consumer.seekToBeginning(assigned);
                    round = 0;
                }
            }
            if (count == 0) throw new IllegalStateException("nothing arrived");
            return result(bytes, count, System.nanoTime() - start, ticks(options) - before, null);
        }
    }

    /** Sends one record every 1/rate seconds without linger, and measures the time until the consumer has it. */
    static String latency(Map<String, String> options) throws Exception {
        String topic = options.get("topic");
        int size = Integer.parseInt(options.get("size")), warm = 100;
        long gap = (long) (1e9 / Double.parseDouble(options.get("rate")));
        long total = warm + (long) (Double.parseDouble(options.get("seconds")) * 1e9 / gap);
        Samples samples = new Samples();
        List<TopicPartition> assigned = List.of(new TopicPartition(topic, 0));
        try (KafkaProducer<byte[], byte[]> producer = producer(options, "0"); KafkaConsumer<byte[], byte[]> consumer = consumer(options)) {
            consumer.assign(assigned);
            consumer.seekToEnd(assigned);
            consumer.position(assigned.get(0));
            producer.partitionsFor(topic);
            Thread sender = new Thread(() -> {
                long next = System.nanoTime();
                for (long i = 0; i < total; i++, next += gap) {
                    while (System.nanoTime() < next) LockSupport.parkNanos(next - System.nanoTime());
                    byte[] value = new byte[size];
                    ByteBuffer.wrap(value).putLong(System.nanoTime());
                    producer.send(new ProducerRecord<>(topic, value));
                }
                producer.flush();
            });
            long before = ticks(options), start = System.nanoTime(), seen = 0;
            sender.start();
            while (seen < total) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(1000))) {
                    long took = System.nanoTime() - ByteBuffer.wrap(record.value()).getLong();
                    if (seen++ >= warm) samples.add(took);
                }
                if (System.nanoTime() - start > total * gap + 30e9) throw new IllegalStateException("only " + seen + " of " + total + " arrived");
            }
            sender.join();
            return result(seen * size, seen, System.nanoTime() - start, ticks(options) - before, samples);
        }
    }

    /** Log lines that compress to about a third, like those of the raw load. */
    static byte[][] lines(int size) {
        String[] words = ("GET POST PUT 200 204 301 404 500 /orders /users /search /cart /login host=web-1 host=web-2 region=eu region=us user= "
            + "order= session= price= amount= status=ok status=failed retry=1 cache=hit cache=miss latency_ms= bytes= trace= span= level=info "
            + "level=warn level=error component=checkout component=payment component=stock").split(" ");
        byte[][] lines = new byte[4096][];
        long state = 1;
        for (int i = 0; i < lines.length; i++) {
            StringBuilder line = new StringBuilder();
            while (line.length() < size) {
                state = state * 6364136223846793005L + 1442695040888963407L;
                line.append(words[(int) ((state >>> 33) % words.length)]).append((state >>> 40) % 100000).append(' ');
            }
            lines[i] = line.substring(0, size).getBytes();
        }
        return lines;
    }
}
