import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;

import org.apache.kafka.common.utils.AppInfoParser;

/** What a member of a group tells, a line of JSON each. */
final class Lines {
    static final int AUTO_COMMIT_MS = 200;
    /** Standard output itself: the tools write to System.out, which is read first. */
    private static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private Lines() { }

    static synchronized void tell(String event, String fields) {
        OUT.println("{\"at\":" + System.currentTimeMillis() + ",\"event\":\"" + event + "\"" + fields + "}");
        OUT.flush();
    }

    static void hello(boolean owners) {
        tell("hello", ",\"version\":\"" + AppInfoParser.getVersion() + "\",\"owners\":" + owners);
    }

    static void assigned(List<Integer> partitions, Integer generation) {
        tell("assigned", ",\"partitions\":" + partitions + ",\"generation\":" + generation);
    }

    static void revoked(List<Integer> partitions) {
        tell("revoked", ",\"partitions\":" + partitions);
    }

    static void record(int partition, long offset, String value) {
        tell("record", ",\"partition\":" + partition + ",\"offset\":" + offset + ",\"value\":" + Matrix.quoted(value));
    }

    static void done(String command) {
        tell("done", ",\"command\":\"" + command + "\"");
    }

    static void failed(String command, Exception problem) {
        String words = problem.getClass().getSimpleName() + ": " + problem.getMessage();
        tell("failed", ",\"command\":\"" + command + "\",\"error\":" + Matrix.quoted(words));
    }

    /** The client does not have what was asked for. */
    static void absent(String why) {
        tell("absent", ",\"why\":" + Matrix.quoted(why));
        Runtime.getRuntime().halt(0);
    }
}
