import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** The records that the Java client sends, and the comparison of what came back; ../README.md describes the record set. */
final class Records {
    static final int PARTITIONS = 4;
    private static final int LARGE_BYTES = 100_000;
    private static final int MEDIUM_BYTES = 10_000;
    private static final int SMALL_BYTES_MAX = 700;
    private static final byte[] TEXT = block(15);
    private static final byte[] NOISE = block(255);

    private Records() { }

    private static byte[] block(int mask) {
        byte[] out = new byte[128 * 1024];
        int state = 0x2545F491;
        for (int i = 0; i < out.length; i++) {
            state = state * 1664525 + 1013904223;
            int random = state >>> 24;
            out[i] = (byte) (mask == 255 ? random : 97 + (random & mask));
        }
        return out;
    }

    private static byte[] valueBytes(int i, int length) {
        byte[] source = i % 2 == 1 ? NOISE : TEXT;
        int start = (int) (i * 7919L % (source.length - LARGE_BYTES));
        return Arrays.copyOfRange(source, start, start + length);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] key(int i) {
        return switch (i % 6) {
            case 0 -> null;
            case 1 -> new byte[0];
            case 2 -> bytes("key-" + i);
            case 3 -> bytes("ключ-鍵-🔑-" + i);
            case 4 -> Arrays.copyOfRange(NOISE, i, i + 8);
            default -> bytes("k" + i % 50);
        };
    }

    static byte[] value(int i) {
        if (i % 1000 == 7) {
            return valueBytes(i, LARGE_BYTES);
        }
        if (i % 100 == 8) {
            return valueBytes(i, MEDIUM_BYTES);
        }
        return switch (i % 10) {
            case 1 -> null;
            case 2 -> new byte[0];
            case 3 -> bytes("значение " + i + " 値 ✓ \u0000 \u2028 end");
            default -> valueBytes(i, 1 + i * 31 % SMALL_BYTES_MAX);
        };
    }

    private static List<Header> headers(int i) {
        return switch (i % 4) {
            case 1 -> List.of(new RecordHeader("trace", bytes("id-" + i)));
            case 2 -> List.of(new RecordHeader("a", new byte[] {0, (byte) 255}), new RecordHeader("a", bytes("second")),
                    new RecordHeader("пусто", new byte[0]));
            case 3 -> List.of(new RecordHeader("null", (byte[]) null), new RecordHeader("n", bytes(String.valueOf(i))));
            default -> List.of();
        };
    }

    /** Timestamps end now, so that no retention by time removes the records. */
    static List<ProducerRecord<byte[], byte[]>> make(String topic, int count) {
        long base = System.currentTimeMillis() - count;
        List<ProducerRecord<byte[], byte[]>> out = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            out.add(new ProducerRecord<>(topic, i % PARTITIONS, base + i, key(i), value(i), headers(i)));
        }
        return out;
    }

    /** Fails with the first difference; both are in order within each partition. */
    static void compare(List<ProducerRecord<byte[], byte[]>> sent, List<ConsumerRecord<byte[], byte[]>> read) {
        for (int p = 0; p < PARTITIONS; p++) {
            int partition = p;
            List<ProducerRecord<byte[], byte[]>> want = sent.stream().filter(r -> r.partition() == partition).toList();
            List<ConsumerRecord<byte[], byte[]>> have = read.stream().filter(r -> r.partition() == partition).toList();
            check(want.size(), have.size(), "records of partition " + p);
            for (int at = 0; at < want.size(); at++) {
                compareOne(want.get(at), have.get(at), at, "partition " + p + ", record " + at + ": ");
            }
        }
    }

    private static void compareOne(ProducerRecord<byte[], byte[]> want, ConsumerRecord<byte[], byte[]> have, int at, String where) {
        check((long) at, have.offset(), where + "offset");
        check(want.timestamp(), have.timestamp(), where + "timestamp");
        check(Arrays.toString(want.key()), Arrays.toString(have.key()), where + "key");
        if (!Arrays.equals(want.value(), have.value())) {
            throw new IllegalStateException(where + "value differs");
        }
        check(Arrays.toString(want.headers().toArray()), Arrays.toString(have.headers().toArray()), where + "headers");
    }

    static void check(Object want, Object have, String what) {
        if (!want.equals(have)) {
            throw new IllegalStateException(what + ": sent " + want + ", read " + have);
        }
    }
}
