import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines "name version hex" from a file, and for each prints what Apache Kafka makes of the bytes:
 * the bytes it writes back, a tab, and the message as JSON; or "error" and the reason.
 */
public class Echo {
    static final String PACKAGE = "org.apache.kafka.common.message.";

    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            try {
                out.append(echo(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
            } catch (Throwable error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                out.append("error\t").append(cause.toString().replace('\n', ' '));
            }
            out.append('\n');
        }
        System.out.print(out);
    }

    static String echo(String name, short version, byte[] bytes) throws Exception {
        boolean request = name.endsWith("Request") || name.endsWith("Response") || name.endsWith("Header");
        Class<?> type = Class.forName(PACKAGE + name + (request ? "Data" : ""));
        Message message = (Message) type.getConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            return "error\t" + buffer.remaining() + " bytes left";
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer back = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(back), cache, version);
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        Object json = converter.getMethod("write", type, short.class).invoke(null, message, version);
        return HexFormat.of().formatHex(back.array()) + "\t" + json;
    }
}
