import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A topic made for one case, read back with assigned partitions, and deleted at the end. */
final class Topic implements AutoCloseable {
    private final Admin admin;
    private final String bootstrap;
    private final String name;
    private final List<TopicPartition> partitions = new ArrayList<>();

    Topic(String bootstrap, String name, int count) throws Exception {
        this.bootstrap = bootstrap;
        this.name = name;
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        admin.createTopics(List.of(new NewTopic(name, Optional.of(count), Optional.of((short) 1)))).all().get();
        for (int p = 0; p < count; p++) {
            partitions.add(new TopicPartition(name, p));
        }
        awaitLeaders();
    }

    /** A topic's leaders may start after its creation is answered; acks=0 would lose what comes before. */
    private void awaitLeaders() throws Exception {
        for (int attempt = 0;; attempt++) {
            try {
                ends();
                return;
            } catch (ExecutionException problem) {
                if (attempt == 100) {
                    throw problem;
                }
                Thread.sleep(20);
            }
        }
    }

    private long ends() throws Exception {
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        partitions.forEach(p -> latest.put(p, OffsetSpec.latest()));
        return admin.listOffsets(latest).all().get().values().stream().mapToLong(one -> one.offset()).sum();
    }

    /** Waits until the topic holds so many records: with acks=0 that is some time after the producer is done. */
    void await(int count) throws Exception {
        long until = System.nanoTime() + Duration.ofSeconds(10).toNanos();
        long have;
        while ((have = ends()) < count) {
            if (System.nanoTime() > until) {
                throw new IllegalStateException("sent " + count + " records, the topic has " + have);
            }
            Thread.sleep(20);
        }
        if (have > count) {
            throw new IllegalStateException("sent " + count + " records, the topic has " + have);
        }
    }

    List<ConsumerRecord<byte[], byte[]>> read(int count) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "none", "enable.auto.commit", false);
        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            partitions.forEach(p -> consumer.seek(p, 0));
            int idle = 0;
            while (read.size() < count && idle < 20) {
                int before = read.size();
                consumer.poll(Duration.ofMillis(500)).forEach(read::add);
                idle = read.size() == before ? idle + 1 : 0;
            }
            // Nothing may come after the expected records.
            consumer.poll(Duration.ofMillis(100)).forEach(read::add);
        }
        return read;
    }

    @Override
    public void close() throws Exception {
        admin.deleteTopics(List.of(name)).all().get();
        admin.close();
    }
}
