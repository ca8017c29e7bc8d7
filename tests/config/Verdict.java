import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** Arguments name=value: whether Apache Kafka takes each as a topic's option. Argument @file: its pairs, as Java reads them. */
public class Verdict {
    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            if (argument.startsWith("@")) {
                Properties pairs = new Properties();
                try (BufferedReader reader = Files.newBufferedReader(Path.of(argument.substring(1)), StandardCharsets.UTF_8)) {
                    pairs.load(reader);
                }
                for (String name : new java.util.TreeSet<>(pairs.stringPropertyNames())) System.out.println(hex(name) + "\t" + hex(pairs.getProperty(name)));
                continue;
            }
            int equals = argument.indexOf('=');
            System.out.println(argument + "\t" + verdict(argument.substring(0, equals), argument.substring(equals + 1)));
        }
    }

    static String verdict(String name, String value) throws Exception {
        Map<String, String> pairs = new HashMap<>();
        pairs.put(name, value);
        Method validate = Class.forName("org.apache.kafka.storage.internals.log.LogConfig").getMethod("validate", Map.class);
        try {
            validate.invoke(null, pairs);
            return "ok";
        } catch (java.lang.reflect.InvocationTargetException refused) {
            return refused.getCause().getMessage();
        }
    }

    static String hex(String text) {
        StringBuilder out = new StringBuilder("x");
        for (char unit : text.toCharArray()) out.append(String.format("%04x", (int) unit));
        return out.toString();
    }
}
