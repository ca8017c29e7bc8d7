import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * One JVM that runs Apache Kafka's command line tools one after the other, so that a suite pays for one start.
 *
 * Request: count, then count strings (class, standard input, arguments...). Answer: exit status, standard output,
 * standard error. Every number is an int, every string its length in bytes and UTF-8.
 */
public class Tools {
    /** Thrown instead of ending the JVM when a tool calls exit. An Error, so that tools do not catch it as a failure. */
    static class Exited extends Error {
        Exited() {
            super("exit", null, false, false);
        }
    }

    /** A stream whose target changes from run to run: Scala's Console keeps the first stream it has seen for ever. */
    static class Switch extends OutputStream {
        volatile OutputStream target;

        Switch(OutputStream target) {
            this.target = target;
        }

        @Override
        public void write(int b) throws IOException {
            target.write(b);
        }

        @Override
        public void write(byte[] bytes, int from, int size) throws IOException {
            target.write(bytes, from, size);
        }
    }

    static volatile Integer status;

    static void leave(int code) {
        if (status == null) {
            status = code;
        }
        throw new Exited();
    }

    public static void main(String[] args) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Switch out = new Switch(OutputStream.nullOutputStream());
        Switch err = new Switch(OutputStream.nullOutputStream());
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> leave(code));
        Exit.setHaltProcedure((code, message) -> leave(code));
        addNoShutdownHooks();
        while (true) {
            String[] words;
            try {
                words = new String[requests.readInt()];
            } catch (EOFException closed) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8);
            }
            ByteArrayOutputStream outBytes = new ByteArrayOutputStream();
            ByteArrayOutputStream errBytes = new ByteArrayOutputStream();
            out.target = outBytes;
            err.target = errBytes;
            run(words);
            System.out.flush();
            System.err.flush();
            out.target = OutputStream.nullOutputStream();
            err.target = OutputStream.nullOutputStream();
            answers.writeInt(status);
            for (ByteArrayOutputStream bytes : new ByteArrayOutputStream[] {outBytes, errBytes}) {
                answers.writeInt(bytes.size());
                bytes.writeTo(answers);
            }
            answers.flush();
        }
    }

    /** Releases before 2.4 have none that could be kept away. */
    static void addNoShutdownHooks() throws ReflectiveOperationException {
        Class<?> adder;
        try {
            adder = Class.forName("org.apache.kafka.common.utils.Exit$ShutdownHookAdder");
        } catch (ClassNotFoundException old) {
            return;
        }
        Object none = Proxy.newProxyInstance(adder.getClassLoader(), new Class<?>[] {adder}, (self, method, args) -> null);
        Exit.class.getMethod("setShutdownHookAdder", adder).invoke(null, none);
    }

    static void run(String[] words) {
        status = null;
        InputStream input = new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8));
        System.setIn(input);
        String[] arguments = java.util.Arrays.copyOfRange(words, 2, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Exited)) {
                failure.getCause().printStackTrace();
                status = status == null ? 1 : status;
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            status = 1;
        }
        if (status == null) {
            status = 0;
        }
    }
}
