import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

/**
 * Decodes messages with Kafka's own classes and encodes them again. A line of input is a message's name, the version to
 * decode in, the version to encode in, and bytes in hex; a line of output is bytes in hex, or "error" and why.
 */
public class Recode {
    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };
    static final Map<String, Class<?>> classes = new HashMap<>();

    static Class<?> find(String name) {
        return classes.computeIfAbsent(name, key -> {
            for (String prefix : PACKAGES) {
                for (String suffix : new String[] {"Data", ""}) {
                    try {
                        return Class.forName(prefix + key + suffix);
                    } catch (ClassNotFoundException e) {
                        // the next candidate
                    }
                }
            }
            throw new IllegalArgumentException("no class for " + key);
        });
    }

    static String recode(String[] words) throws Throwable {
        byte[] input = words.length > 3 ? HexFormat.of().parseHex(words[3]) : new byte[0];
        ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(input));
        Message message;
        try {
            message = (Message) find(words[0])
                .getConstructor(Readable.class, short.class)
                .newInstance(readable, Short.parseShort(words[1]));
        } catch (java.lang.reflect.InvocationTargetException e) {
            return "error decoding: " + e.getCause();
        }
        if (readable.remaining() > 0) return "error decoding: " + readable.remaining() + " bytes left";
        try {
            ByteBuffer out = MessageUtil.toByteBufferAccessor(message, Short.parseShort(words[2])).buffer();
            byte[] bytes = new byte[out.remaining()];
            out.get(bytes);
            return HexFormat.of().formatHex(bytes);
        } catch (RuntimeException e) {
            return "error encoding: " + e;
        }
    }

    public static void main(String[] args) throws Throwable {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in), 1 << 20);
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(recode(line.split(" ")).replace('\n', ' '));
        }
        out.flush();
    }
}
