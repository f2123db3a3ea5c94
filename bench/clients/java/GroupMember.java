import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group for the group cases: the client library, or one of the tools (`--tool`); ../README.md describes what it tells. */
public final class GroupMember implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(50);

    private final KafkaConsumer<String, String> consumer;
    private final String topic;
    private final Map<TopicPartition, Long> read = new HashMap<>();

    private GroupMember(Map<String, String> options) {
        topic = options.get("--topic");
        consumer = new KafkaConsumer<>(config(options), new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic), this);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i], arguments[i + 1]);
        }
        String tool = options.get("--tool");
        if (tool != null) {
            GroupTool.run(tool, options, commands());
            return;
        }
        Lines.hello(true);
        new GroupMember(options).run(commands());
    }

    private static Map<String, Object> config(Map<String, String> options) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", options.get("--bootstrap"));
        config.put("group.id", options.get("--group"));
        config.put("group.protocol", "classic");
        boolean cooperative = options.get("--assignor").equals("cooperative-sticky");
        config.put("partition.assignment.strategy",
                (cooperative ? CooperativeStickyAssignor.class : RangeAssignor.class).getName());
        config.put("session.timeout.ms", options.get("--session-ms"));
        config.put("heartbeat.interval.ms", options.get("--heartbeat-ms"));
        config.put("auto.offset.reset", options.get("--reset"));
        config.put("enable.auto.commit", options.get("--commit").equals("auto"));
        config.put("auto.commit.interval.ms", Lines.AUTO_COMMIT_MS);
        config.put("fetch.max.wait.ms", 100);
        if (options.containsKey("--instance")) {
            config.put("group.instance.id", options.get("--instance"));
        }
        return config;
    }

    /** Lines of standard input as they come; its end is the command to leave. */
    private static BlockingQueue<String> commands() {
        BlockingQueue<String> waiting = new LinkedBlockingQueue<>();
        Thread thread = new Thread(() -> {
            try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                in.lines().forEach(waiting::add);
            } catch (IOException problem) {
                Lines.failed("stdin", problem);
            }
            waiting.add("leave");
        });
        thread.setDaemon(true);
        thread.start();
        return waiting;
    }

    private void run(BlockingQueue<String> waiting) {
        while (true) {
            try {
                for (ConsumerRecord<String, String> one : consumer.poll(POLL)) {
                    Lines.record(one.partition(), one.offset(), one.value());
                    read.put(new TopicPartition(topic, one.partition()), one.offset() + 1);
                }
            } catch (RuntimeException problem) {
                Lines.failed("poll", problem);
            }
            for (String line = waiting.poll(); line != null; line = waiting.poll()) {
                if (carryOut(line.split(" "))) {
                    System.exit(0);
                }
            }
        }
    }

    /** One command; whether it was the last. */
    private boolean carryOut(String[] words) {
        try {
            switch (words[0]) {
                case "leave" -> {
                    consumer.close();
                    return true;
                }
                case "commit" -> commit(words[1]);
                case "seek" -> consumer.seek(partition(words[1]), Long.parseLong(words[2]));
                case "pause" -> consumer.pause(List.of(partition(words[1])));
                case "resume" -> consumer.resume(List.of(partition(words[1])));
                default -> throw new IllegalArgumentException(words[0]);
            }
            Lines.done(words[0]);
        } catch (RuntimeException problem) {
            Lines.failed(words[0], problem);
        }
        return words[0].equals("leave");
    }

    private TopicPartition partition(String number) {
        return new TopicPartition(topic, Integer.parseInt(number));
    }

    private void commit(String note) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        read.forEach((partition, offset) -> offsets.put(partition, new OffsetAndMetadata(offset, note)));
        consumer.commitSync(offsets);
        consumer.committed(offsets.keySet()).forEach((partition, committed) ->
                Records.check(offsets.get(partition).metadata(), committed.metadata(), "metadata of " + partition));
    }

    private static List<Integer> numbers(Collection<TopicPartition> partitions) {
        List<Integer> numbers = new ArrayList<>();
        partitions.forEach(one -> numbers.add(one.partition()));
        return numbers;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        Lines.assigned(numbers(partitions), consumer.groupMetadata().generationId());
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        partitions.forEach(read::remove);
        Lines.revoked(numbers(partitions));
    }
}
