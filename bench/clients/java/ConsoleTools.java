import java.util.ArrayList;
import java.util.List;

/** The console producer and consumer: text lines with headers, keys and nulls, read back from an assigned partition. */
final class ConsoleTools implements Matrix.Case {
    private static final String NULL = "<null>";

    @Override
    public int run(String bootstrap, String topicName, String codec, String acks, int count) throws Exception {
        List<String> sent = lines(count);
        try (Topic topic = new Topic(bootstrap, topicName, 1)) {
            String output = produceAndConsume(bootstrap, topicName, codec, acks, sent, topic);
            List<String> read = List.of(output.split("\n"));
            Records.check(sent.size(), read.size(), "lines");
            for (int i = 0; i < sent.size(); i++) {
                Records.check("Partition:0\tOffset:" + i + "\t" + sent.get(i), read.get(i), "line " + i);
            }
            return read.size();
        }
    }

    private static String produceAndConsume(String bootstrap, String topicName, String codec, String acks, List<String> sent,
            Topic topic) throws Exception {
        Tool.run("org.apache.kafka.tools.ConsoleProducer", String.join("\n", sent) + "\n",
                "--bootstrap-server", bootstrap, "--topic", topicName, "--compression-codec", codec,
                "--request-required-acks", acks, "--command-property", "max.in.flight.requests.per.connection=1",
                "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
                "--reader-property", "null.marker=" + NULL);
        topic.await(sent.size());
        return Tool.run("org.apache.kafka.tools.consumer.ConsoleConsumer", "",
                "--bootstrap-server", bootstrap, "--topic", topicName, "--partition", "0", "--offset", "earliest",
                "--max-messages", String.valueOf(sent.size()), "--timeout-ms", "20000",
                "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true",
                "--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true",
                "--formatter-property", "null.literal=" + NULL);
    }

    /** Headers, key and value of each record as both tools write them, separated by tabs. */
    private static List<String> lines(int count) {
        List<String> out = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            String key = i % 7 == 0 ? NULL : i % 7 == 1 ? "" : "ключ-🔑-" + i;
            String value = switch (i % 10) {
                case 1 -> NULL;
                case 2 -> "";
                case 3 -> "x".repeat(i % 1000 == 3 ? 100_000 : 1000);
                default -> "значение 値 ✓ " + i * 7919L;
            };
            out.add("trace:id-" + i + ",пусто:,n:" + NULL + "\t" + key + "\t" + value);
        }
        return out;
    }
}
