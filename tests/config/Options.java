import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/** Prints what Apache Kafka knows of its options: broker and topic rows, how they may change, who inherits from whom. */
public class Options {
    public static void main(String[] arguments) throws Exception {
        rows("broker", broker());
        rows("topic", (ConfigDef) Class.forName("org.apache.kafka.storage.internals.log.LogConfig").getMethod("configDefCopy").invoke(null));
        for (Map.Entry<?, ?> mode : modes().entrySet()) System.out.println("mode\t" + mode.getKey() + "\t" + mode.getValue());
        Map<?, ?> inherited = (Map<?, ?>) Class.forName("org.apache.kafka.server.config.ServerTopicConfigSynonyms").getField("ALL_TOPIC_CONFIG_SYNONYMS").get(null);
        for (Map.Entry<?, ?> entry : inherited.entrySet()) {
            StringBuilder names = new StringBuilder();
            for (Object synonym : (List<?>) entry.getValue()) names.append("\t").append(synonym.getClass().getMethod("name").invoke(synonym));
            System.out.println("inherits\t" + entry.getKey() + names);
        }
    }

    static ConfigDef broker() throws Exception {
        try {
            return (ConfigDef) Class.forName("org.apache.kafka.server.config.AbstractKafkaConfig").getField("CONFIG_DEF").get(null);
        } catch (NoSuchFieldException older) {
            return (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null);
        }
    }

    static Map<?, ?> modes() throws Exception {
        for (String name : new String[] {"org.apache.kafka.server.config.DynamicBrokerConfig", "kafka.server.DynamicBrokerConfig"}) {
            try {
                return (Map<?, ?>) Class.forName(name).getMethod("dynamicConfigUpdateModes").invoke(null);
            } catch (ClassNotFoundException | NoSuchMethodException elsewhere) {
                continue;
            }
        }
        Object module = Class.forName("kafka.server.DynamicBrokerConfig$").getField("MODULE$").get(null);
        return (Map<?, ?>) module.getClass().getMethod("dynamicConfigUpdateModes").invoke(module);
    }

    static void rows(String table, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            String value = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE ? null : ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(String.join("\t", table, key.name, key.type.toString(), value == null ? "null" : "=" + value,
                key.validator == null ? "" : key.validator.toString(), key.importance.toString(), String.valueOf(key.internalConfig)));
        }
    }
}
