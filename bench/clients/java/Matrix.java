import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.utils.AppInfoParser;

/** Runs the Java clients of the matrix: the client library, the console tools, VerifiableProducer; a line of JSON for each case. */
public final class Matrix {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final List<String> ACKS = List.of("0", "1", "all");

    /** What one case sends and reads: fails with an exception that says what differs. */
    interface Case {
        /** Returns how many records were read back, all equal to those sent. */
        int run(String bootstrap, String topic, String codec, String acks, int count) throws Exception;
    }

    private Matrix() { }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>(Map.of("--records", "10000", "--codecs", "", "--acks", "", "--only", ""));
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i], arguments[i + 1]);
        }
        boolean ok = runAll("java-client", new JavaClient(), options);
        ok &= runAll("console-tools", new ConsoleTools(), options);
        ok &= runAll("verifiable-producer", new VerifiableTool(), options);
        System.exit(ok ? 0 : 1);
    }

    private static boolean runAll(String client, Case one, Map<String, String> options) {
        boolean ok = true;
        if (!wanted(options.get("--only"), client)) {
            return true;
        }
        for (String codec : CODECS) {
            for (String acks : ACKS) {
                if (!wanted(options.get("--codecs"), codec) || !wanted(options.get("--acks"), acks)) {
                    continue;
                }
                String topic = String.join("-", options.get("--topic-prefix"), client, codec, acks);
                int count = Integer.parseInt(options.get("--records"));
                long started = System.nanoTime();
                int read = 0;
                String error = null;
                try {
                    read = one.run(options.get("--bootstrap"), topic, codec, acks, count);
                } catch (Exception problem) {
                    error = problem.getClass().getSimpleName() + ": " + problem.getMessage();
                }
                ok &= error == null;
                print(client, codec, acks, count, read, error, (System.nanoTime() - started) / 1e9);
            }
        }
        return ok;
    }

    private static boolean wanted(String list, String name) {
        return list.isEmpty() || Arrays.asList(list.split(",")).contains(name);
    }

    private static void print(String client, String codec, String acks, int count, int read, String error, double seconds) {
        System.out.printf("{\"client\":\"%s\",\"version\":\"%s\",\"codec\":\"%s\",\"acks\":\"%s\",\"produced\":%d,\"read\":%d,"
                + "\"ok\":%b,\"error\":%s,\"seconds\":%.2f}%n", client, AppInfoParser.getVersion(), codec, acks, count, read,
                error == null, error == null ? "null" : quoted(error), seconds);
    }

    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\' || c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
