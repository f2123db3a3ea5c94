import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.GetOffsetShell;
import org.apache.kafka.tools.GroupsCommand;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/**
 * Runs Kafka's tools for groups and offsets on one broker, on groups it makes itself: one with two members, one whose members have left,
 * one that never had any. Prints a line of JSON for each command: what was asked, what was answered, the status.
 * Arguments: HOST:PORT, a folder for files, and a file with a command on each line.
 */
public final class Tools {
    private static final long FIRST_TIMESTAMP = 1_750_000_000_000L;
    private static final Duration POLL = Duration.ofMillis(50);
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final Map<String, Integer> TOPICS = Map.of("events", 4, "orders", 2);

    /** Stands for the end of the process that a tool asks for. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1;
        final int status;

        Ended(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    /** The first end that the running tool asked for: it may catch that and ask again. */
    private static Ended ended;

    private Tools() { }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Path folder = Path.of(arguments[1]);
        Exit.Procedure end = (status, message) -> {
            // The tool has ended: what it would print if it caught this is not part of its answer.
            System.setOut(new PrintStream(PrintStream.nullOutputStream()));
            System.setErr(System.out);
            if (ended == null) {
                ended = new Ended(status);
            }
            throw ended;
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            makeTopics(admin, bootstrap);
            makeRestingGroup(bootstrap, "resting", TOPICS.keySet());
            makeRestingGroup(bootstrap, "former", Set.of("orders"));
            admin.alterConsumerGroupOffsets("simple", Map.of(
                    new TopicPartition("orders", 1), new OffsetAndMetadata(3, "by hand"))).all().get();
        }
        try (Members members = new Members(bootstrap)) {
            for (String line : Files.readAllLines(Path.of(arguments[2]))) {
                if (!line.isBlank() && !line.startsWith("#")) {
                    run(line, bootstrap, folder);
                }
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void makeTopics(Admin admin, String bootstrap) throws Exception {
        // The timestamps are old and always the same, so that searching by time has the same answers.
        List<NewTopic> topics = TOPICS.entrySet().stream().map(topic ->
                new NewTopic(topic.getKey(), topic.getValue(), (short) 1).configs(Map.of("retention.ms", "-1"))).toList();
        admin.createTopics(topics).all().get();
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "acks", "all");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (Map.Entry<String, Integer> topic : TOPICS.entrySet()) {
                for (int partition = 0; partition < topic.getValue(); partition++) {
                    for (int i = 0; i < 20 + 10 * partition; i++) {
                        producer.send(new ProducerRecord<>(topic.getKey(), partition, FIRST_TIMESTAMP + i * 1000L, "k" + i, "v" + i));
                    }
                }
            }
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String group, String client, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group, "client.id", client,
                "enable.auto.commit", "false", "auto.offset.reset", "earliest"));
        config.putAll(more);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void makeRestingGroup(String bootstrap, String group, Set<String> topics) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, group, group, Map.of())) {
            consumer.subscribe(topics);
            long until = System.nanoTime() + PATIENCE.toNanos();
            while (consumer.assignment().isEmpty()) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException(group + " was not assigned anything");
                }
                consumer.poll(POLL);
            }
            consumer.commitSync(offsets(consumer.assignment(), 10));
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(Collection<TopicPartition> partitions, long first) {
        return partitions.stream().collect(Collectors.toMap(at -> at, at -> new OffsetAndMetadata(first + at.partition(), "")));
    }

    /** A dynamic and a static member of the group "readers" that poll for as long as this is open. */
    private static final class Members implements AutoCloseable {
        private final List<Thread> threads = new ArrayList<>();
        private final Map<String, Set<TopicPartition>> owned = new TreeMap<>();
        private volatile boolean closing;

        /** The second joins when the first has everything, so that the generations are always the same. */
        Members(String bootstrap) throws InterruptedException {
            start("reader-a", consumer(bootstrap, "readers", "reader-a", Map.of()));
            await("reader-a", 4);
            start("reader-b", consumer(bootstrap, "readers", "reader-b", Map.of("group.instance.id", "reader-static")));
            await("reader-a", 2);
            await("reader-b", 2);
        }

        private void start(String name, KafkaConsumer<byte[], byte[]> consumer) {
            Thread thread = new Thread(() -> {
                try (consumer) {
                    consumer.subscribe(Set.of("events"));
                    while (!closing) {
                        consumer.poll(POLL);
                        Set<TopicPartition> now = Set.copyOf(consumer.assignment());
                        if (!now.equals(owned(name))) {
                            if (now.size() == 2) {
                                consumer.commitSync(offsets(now, 5));
                            }
                            synchronized (owned) {
                                owned.put(name, now);
                            }
                        }
                    }
                }
            }, name);
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }

        private Set<TopicPartition> owned(String name) {
            synchronized (owned) {
                return owned.getOrDefault(name, Set.of());
            }
        }

        private void await(String name, int partitions) throws InterruptedException {
            long until = System.nanoTime() + PATIENCE.toNanos();
            while (owned(name).size() != partitions) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException(name + " should have " + partitions + " partitions: " + owned);
                }
                Thread.sleep(20);
            }
        }

        @Override
        public void close() throws InterruptedException {
            closing = true;
            for (Thread thread : threads) {
                thread.join(PATIENCE.toMillis());
            }
        }
    }

    private static void run(String line, String bootstrap, Path folder) throws Exception {
        // A command may send its output to a file: `… > NAME`.
        String[] parts = line.split(" > ", 2);
        List<String> words = new ArrayList<>(List.of(parts[0].replace("DIR/", folder + "/").split(" ")));
        String tool = words.remove(0);
        words.addAll(0, List.of("--bootstrap-server", bootstrap));
        PrintStream stdout = System.out;
        PrintStream stderr = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = parts.length > 1 ? new ByteArrayOutputStream() : said;
        int status;
        System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        try {
            status = call(tool, words.toArray(String[]::new));
        } finally {
            System.setOut(stdout);
            System.setErr(stderr);
        }
        if (parts.length > 1) {
            Files.write(folder.resolve(parts[1]), said.toByteArray());
        }
        Map<String, Object> step = new TreeMap<>(Map.of("command", line, "status", status,
                "output", said.toString(StandardCharsets.UTF_8)));
        stdout.println(new ObjectMapper().writeValueAsString(step));
        stdout.flush();
    }

    private static int call(String tool, String[] words) throws Exception {
        ended = null;
        try {
            switch (tool) {
                case "kafka-consumer-groups" -> ConsumerGroupCommand.main(words);
                case "kafka-get-offsets" -> GetOffsetShell.main(words);
                case "kafka-groups" -> GroupsCommand.main(words);
                default -> throw new IllegalArgumentException(tool);
            }
            return 0;
        } catch (Ended end) {
            return end.status;
        }
    }
}
