import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The client library: idempotent with acks=all, as it is by default. */
final class JavaClient implements Matrix.Case {
    @Override
    public int run(String bootstrap, String topicName, String codec, String acks, int count) throws Exception {
        List<ProducerRecord<byte[], byte[]>> sent = Records.make(topicName, count);
        try (Topic topic = new Topic(bootstrap, topicName, Records.PARTITIONS)) {
            Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "acks", acks, "compression.type", codec,
                    "max.in.flight.requests.per.connection", acks.equals("all") ? 5 : 1);
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            try (KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
                sent.forEach(record -> answers.add(producer.send(record)));
                producer.flush();
            }
            checkAnswers(answers, acks);
            topic.await(count);
            List<ConsumerRecord<byte[], byte[]>> read = topic.read(count);
            Records.compare(sent, read);
            return read.size();
        }
    }

    /** Offsets count up in each partition; acks=0 gets none. */
    private static void checkAnswers(List<Future<RecordMetadata>> answers, String acks) throws Exception {
        long[] next = new long[Records.PARTITIONS];
        for (Future<RecordMetadata> answer : answers) {
            RecordMetadata metadata = answer.get();
            long want = acks.equals("0") ? -1 : next[metadata.partition()]++;
            Records.check(want, metadata.offset(), "acknowledged offset in partition " + metadata.partition());
        }
    }
}
