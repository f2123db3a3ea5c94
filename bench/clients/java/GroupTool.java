import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.kafka.tools.ConsumerPerformance;
import org.apache.kafka.tools.VerifiableConsumer;
import org.apache.kafka.tools.consumer.ConsoleConsumer;

/** The tools as members of a group: run in this process, what they print is told in the lines that every member tells. */
final class GroupTool {
    private static final Pattern NUMBER = Pattern.compile("\"partition\":(\\d+)");
    private static final Pattern DATA = Pattern.compile("\"value\":\"([^\"]*)\".*\"partition\":(\\d+).*\"offset\":(\\d+)"
            + "|\"partition\":(\\d+).*\"offset\":(\\d+).*\"value\":\"([^\"]*)\"");
    private static final Pattern CONSOLE = Pattern.compile("Partition:(\\d+)\tOffset:(\\d+)\t(.*)");

    private GroupTool() { }

    static void run(String tool, Map<String, String> options, BlockingQueue<String> commands) throws Exception {
        if (tool.equals("consumer-performance")) {
            count(options, commands);
            return;
        }
        boolean verifiable = tool.equals("verifiable-consumer");
        Lines.hello(verifiable);
        List<String> arguments = verifiable ? verifiable(options) : console(options);
        System.setOut(new PrintStream(new Split(verifiable ? GroupTool::tellVerifiable : GroupTool::tellConsole), true,
                StandardCharsets.UTF_8));
        obey(commands);
        String[] array = arguments.toArray(new String[0]);
        if (verifiable) {
            VerifiableConsumer.main(array);
        } else {
            ConsoleConsumer.main(array);
        }
    }

    /** ConsumerPerformance ends by itself; the last line of its table has the number of records in the fifth column. */
    private static void count(Map<String, String> options, BlockingQueue<String> commands) throws Exception {
        Lines.hello(false);
        String[] last = {""};
        System.setOut(new PrintStream(new Split(line -> last[0] = line), true, StandardCharsets.UTF_8));
        ConsumerPerformance.main(new String[] {"--bootstrap-server", options.get("--bootstrap"), "--topic", options.get("--topic"),
            "--group", options.get("--group"), "--num-records", options.get("--count"), "--hide-header",
            "--command-config", properties(options)});
        Lines.tell("count", ",\"records\":" + last[0].split(", ")[4]);
        commands.take();
        System.exit(0);
    }

    /** The tools know one command, the signal to end: their shutdown hooks leave the group. */
    private static void obey(BlockingQueue<String> commands) {
        Thread thread = new Thread(() -> {
            try {
                if (commands.take().equals("leave")) {
                    System.exit(0);
                }
                Lines.absent("the tool takes no commands");
            } catch (InterruptedException problem) {
                Thread.currentThread().interrupt();
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static List<String> verifiable(Map<String, String> options) throws IOException {
        List<String> out = new ArrayList<>(List.of("--bootstrap-server", options.get("--bootstrap"), "--topic", options.get("--topic"),
                "--group-id", options.get("--group"), "--group-protocol", "classic", "--session-timeout", options.get("--session-ms"),
                "--reset-policy", options.get("--reset"), "--verbose", "--command-config", properties(options)));
        out.addAll(List.of("--assignment-strategy", options.get("--assignor").equals("range")
                ? "org.apache.kafka.clients.consumer.RangeAssignor" : "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"));
        if (options.get("--commit").equals("auto")) {
            out.add("--enable-autocommit");
        }
        if (options.containsKey("--instance")) {
            out.addAll(List.of("--group-instance-id", options.get("--instance")));
        }
        return out;
    }

    private static List<String> console(Map<String, String> options) throws IOException {
        List<String> out = new ArrayList<>(List.of("--bootstrap-server", options.get("--bootstrap"), "--topic", options.get("--topic"),
                "--group", options.get("--group"), "--formatter-property", "print.partition=true",
                "--formatter-property", "print.offset=true", "--command-config", properties(options)));
        return out;
    }

    /** What has no option of its own. */
    private static String properties(Map<String, String> options) throws IOException {
        boolean cooperative = options.get("--assignor").equals("cooperative-sticky");
        List<String> lines = new ArrayList<>(List.of("heartbeat.interval.ms=" + options.get("--heartbeat-ms"),
                "auto.commit.interval.ms=" + Lines.AUTO_COMMIT_MS, "fetch.max.wait.ms=100", "group.protocol=classic",
                "session.timeout.ms=" + options.get("--session-ms"), "auto.offset.reset=" + options.get("--reset"),
                "enable.auto.commit=" + options.get("--commit").equals("auto"),
                "partition.assignment.strategy=org.apache.kafka.clients.consumer."
                        + (cooperative ? "CooperativeStickyAssignor" : "RangeAssignor")));
        if (options.containsKey("--instance")) {
            lines.add("group.instance.id=" + options.get("--instance"));
        }
        Path file = Files.createTempFile("member", ".properties");
        file.toFile().deleteOnExit();
        Files.write(file, lines);
        return file.toString();
    }

    private static void tellVerifiable(String line) {
        if (line.contains("\"partitions_assigned\"")) {
            Lines.assigned(partitions(line), null);
        } else if (line.contains("\"partitions_revoked\"")) {
            Lines.revoked(partitions(line));
        } else if (line.contains("\"record_data\"")) {
            Matcher data = DATA.matcher(line);
            if (data.find()) {
                boolean first = data.group(1) != null;
                Lines.record(Integer.parseInt(data.group(first ? 2 : 4)), Long.parseLong(data.group(first ? 3 : 5)),
                        data.group(first ? 1 : 6));
            }
        }
    }

    private static List<Integer> partitions(String line) {
        List<Integer> out = new ArrayList<>();
        for (Matcher found = NUMBER.matcher(line); found.find();) {
            out.add(Integer.parseInt(found.group(1)));
        }
        return out;
    }

    private static void tellConsole(String line) {
        Matcher found = CONSOLE.matcher(line);
        if (found.matches()) {
            Lines.record(Integer.parseInt(found.group(1)), Long.parseLong(found.group(2)), found.group(3));
        }
    }

    /** Hands on whole lines. */
    private static final class Split extends OutputStream {
        private final ByteArrayOutputStream line = new ByteArrayOutputStream();
        private final Consumer<String> lines;

        Split(Consumer<String> lines) {
            this.lines = lines;
        }

        @Override
        public synchronized void write(int octet) {
            if (octet == '\n') {
                lines.accept(line.toString(StandardCharsets.UTF_8));
                line.reset();
            } else {
                line.write(octet);
            }
        }
    }
}
