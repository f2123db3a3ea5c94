import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.kafka.clients.consumer.ConsumerRecord;

/** VerifiableProducer: what it says was acknowledged is read back, at the offset that it was told. */
final class VerifiableTool implements Matrix.Case {
    private static final Pattern FIELD = Pattern.compile("\"(key|value|topic|partition|offset|name)\":(?:\"([^\"]*)\"|(-?\\d+)|null)");

    @Override
    public int run(String bootstrap, String topicName, String codec, String acks, int count) throws Exception {
        try (Topic topic = new Topic(bootstrap, topicName, Records.PARTITIONS)) {
            List<String> acknowledged = produce(bootstrap, topicName, codec, acks, count);
            topic.await(count);
            List<ConsumerRecord<byte[], byte[]>> read = topic.read(count);
            List<String> found = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : read) {
                String offset = acks.equals("0") ? "-1" : String.valueOf(record.offset());
                found.add(new String(record.value()) + " key " + new String(record.key()) + " at " + record.partition() + ":" + offset);
            }
            acknowledged.sort(null);
            found.sort(null);
            Records.check(count, acknowledged.size(), "acknowledged");
            for (int i = 0; i < acknowledged.size(); i++) {
                Records.check(acknowledged.get(i), i < found.size() ? found.get(i) : "nothing", "record");
            }
            Records.check(acknowledged.size(), found.size(), "records");
            return read.size();
        }
    }

    private static List<String> produce(String bootstrap, String topicName, String codec, String acks, int count) throws Exception {
        Path config = Files.createTempFile("verifiable", ".properties");
        try {
            Files.writeString(config, "compression.type=" + codec + "\nmax.in.flight.requests.per.connection=1\n");
            String output = Tool.run("org.apache.kafka.tools.VerifiableProducer", "", "--bootstrap-server", bootstrap, "--topic", topicName,
                    "--max-messages", String.valueOf(count), "--acks", acks.equals("all") ? "-1" : acks, "--repeating-keys", "97",
                    "--command-config", config.toString());
            List<String> out = new ArrayList<>();
            for (String line : output.split("\n")) {
                if (line.contains("\"producer_send_error\"")) {
                    throw new IOException(line);
                }
                if (line.contains("\"producer_send_success\"")) {
                    out.add(field(line, "value") + " key " + field(line, "key") + " at " + field(line, "partition") + ":" + field(line, "offset"));
                }
            }
            return out;
        } finally {
            Files.delete(config);
        }
    }

    private static String field(String json, String name) {
        Matcher matcher = FIELD.matcher(json);
        while (matcher.find()) {
            if (matcher.group(1).equals(name)) {
                return matcher.group(2) != null ? matcher.group(2) : matcher.group(3);
            }
        }
        throw new IllegalStateException("no " + name + " in " + json);
    }
}
