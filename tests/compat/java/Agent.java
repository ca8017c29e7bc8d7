import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;

/**
 * The line protocol of clients.py for Java clients of every release; a subclass has the calls of its release.
 * Words are separated by tabs, bytes are hexadecimal, null is "-"; every answer is one line of JSON.
 */
public abstract class Agent {
    /** One record as a command spells it. */
    static class Item {
        final Long timestamp;
        final byte[] key;
        final byte[] value;
        final List<String> names = new ArrayList<>();
        final List<byte[]> values = new ArrayList<>();

        Item(String word) {
            String[] parts = word.split("\\|", -1);
            timestamp = parts[0].equals("-") ? null : Long.valueOf(parts[0]);
            key = bytes(parts[1]);
            value = bytes(parts[2]);
            if (!parts[3].isEmpty()) {
                for (String header : parts[3].split(",")) {
                    int colon = header.indexOf(':');
                    names.add(header.substring(0, colon));
                    values.add(bytes(header.substring(colon + 1)));
                }
            }
        }
    }

    /** Offsets, as a JSON list. */
    abstract String produce(String topic, int partition, String codec, String acks, boolean idempotent, List<Item> items)
        throws Exception;

    /** Records, as a JSON list: see `row`. */
    abstract String consume(String topic, int partition, long offset, int count) throws Exception;

    /** The offset for a time (-1 latest, -2 earliest), null when there is none. */
    abstract Long offset(String topic, int partition, long timestamp) throws Exception;

    abstract int partitions(String topic) throws Exception;

    void create(String topic, int partitions, Map<String, String> configs) throws Exception {
        throw new UnsupportedOperationException("create");
    }

    void delete(String topic) throws Exception {
        throw new UnsupportedOperationException("delete");
    }

    void grow(String topic, int total) throws Exception {
        throw new UnsupportedOperationException("grow");
    }

    Map<String, String> configs(String topic) throws Exception {
        throw new UnsupportedOperationException("configs");
    }

    void alter(String topic, Map<String, String> configs) throws Exception {
        throw new UnsupportedOperationException("alter");
    }

    long trim(String topic, int partition, long offset) throws Exception {
        throw new UnsupportedOperationException("trim");
    }

    void serve() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "{\"ok\": " + run(line.split("\t", -1)) + "}";
            } catch (Throwable failure) {
                answer = failed(failure);
            }
            out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }

    private String run(String[] words) throws Exception {
        String topic = words[1];
        switch (words[0]) {
            case "produce":
                List<Item> items = new ArrayList<>();
                for (int i = 6; i < words.length; i++) {
                    items.add(new Item(words[i]));
                }
                return produce(topic, number(words[2]), words[3], words[4], words[5].equals("1"), items);
            case "consume":
                return consume(topic, number(words[2]), Long.parseLong(words[3]), number(words[4]));
            case "offset":
                return String.valueOf(offset(topic, number(words[2]), Long.parseLong(words[3])));
            case "partitions":
                return String.valueOf(partitions(topic));
            case "create":
                create(topic, number(words[2]), pairs(words[3]));
                return "null";
            case "delete":
                delete(topic);
                return "null";
            case "grow":
                grow(topic, number(words[2]));
                return "null";
            case "configs":
                StringBuilder text = new StringBuilder("{");
                configs(topic).forEach((name, value) ->
                    text.append(text.length() > 1 ? ", " : "").append(quote(name)).append(": ").append(quote(value)));
                return text.append("}").toString();
            case "alter":
                alter(topic, pairs(words[2]));
                return "null";
            case "trim":
                return String.valueOf(trim(topic, number(words[2]), Long.parseLong(words[3])));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String failed(Throwable failure) {
        while (failure instanceof ExecutionException && failure.getCause() != null) {
            failure = failure.getCause();
        }
        if (failure instanceof ApiException && Errors.forException(failure).code() > 0) {
            return "{\"refused\": " + Errors.forException(failure).code() + ", \"message\": " + quote(failure.getMessage()) + "}";
        }
        failure.printStackTrace();
        return "{\"failed\": " + quote(failure.toString()) + "}";
    }

    static int number(String word) {
        return Integer.parseInt(word);
    }

    static Map<String, String> pairs(String word) {
        Map<String, String> map = new HashMap<>();
        for (String pair : word.isEmpty() ? new String[0] : word.split(",")) {
            int equals = pair.indexOf('=');
            map.put(pair.substring(0, equals), pair.substring(equals + 1));
        }
        return map;
    }

    static byte[] bytes(String word) {
        if (word.equals("-")) {
            return null;
        }
        byte[] data = new byte[word.length() / 2];
        for (int i = 0; i < data.length; i++) {
            data[i] = (byte) Integer.parseInt(word.substring(2 * i, 2 * i + 2), 16);
        }
        return data;
    }

    static String hex(byte[] data) {
        if (data == null) {
            return "null";
        }
        StringBuilder text = new StringBuilder("\"");
        for (byte b : data) {
            text.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        return text.append('"').toString();
    }

    /** One consumed record; headers are a JSON list already. */
    static String row(long offset, Long timestamp, byte[] key, byte[] value, String headers) {
        return "[" + offset + ", " + timestamp + ", " + hex(key) + ", " + hex(value) + ", " + headers + "]";
    }

    static String quote(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            quoted.append(c < 32 || c == '"' || c == '\\' || c > 126 ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return quoted.append('"').toString();
    }
}
