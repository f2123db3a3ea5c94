"""The records that every Python client of the matrix sends, and the comparison of what came back.

README.md of the parent folder describes the record set; the Go, JavaScript and Java programs make the same one.
"""

import argparse
import json
import sys
import time

PARTITIONS = 4
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
LARGE_BYTES = 100_000
MEDIUM_BYTES = 10_000
SMALL_BYTES_MAX = 700


def block(mask):
    """128 KiB from a linear congruential generator; a mask of 15 leaves four random bits a byte, so that it compresses."""
    state, out = 0x2545F491, bytearray()
    for _ in range(128 * 1024):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        byte = state >> 24
        out.append(97 + (byte & mask) if mask != 255 else byte)
    return bytes(out)


TEXT, NOISE = block(15), block(255)


def value_bytes(i, length):
    source = NOISE if i % 2 else TEXT
    start = (i * 7919) % (len(source) - LARGE_BYTES)
    return source[start:start + length]


def key(i):
    kind = i % 6
    if kind == 0:
        return None
    if kind == 1:
        return b""
    if kind == 2:
        return f"key-{i}".encode()
    if kind == 3:
        return f"ключ-鍵-🔑-{i}".encode()
    if kind == 4:
        return NOISE[i:i + 8]
    return f"k{i % 50}".encode()


def value(i):
    if i % 1000 == 7:
        return value_bytes(i, LARGE_BYTES)
    if i % 100 == 8:
        return value_bytes(i, MEDIUM_BYTES)
    kind = i % 10
    if kind == 1:
        return None
    if kind == 2:
        return b""
    if kind == 3:
        return f"значение {i} 値 ✓ \u0000 \u2028 end".encode()
    return value_bytes(i, 1 + (i * 31) % SMALL_BYTES_MAX)


def headers(i, null):
    kind = i % 4
    if kind == 0:
        return []
    if kind == 1:
        return [("trace", f"id-{i}".encode())]
    if kind == 2:
        return [("a", b"\x00\xff"), ("a", b"second"), ("пусто", b"")]
    return [("null", null), ("n", str(i).encode())]


class Record:
    """One record as sent, or as read with its offset."""

    __slots__ = ("key", "value", "headers", "timestamp", "offset")

    def __init__(self, key, value, headers, timestamp, offset=None):
        self.key, self.value, self.headers, self.timestamp, self.offset = key, value, headers, timestamp, offset


def records(count, null_header):
    """`count` pairs of (partition, Record). Timestamps end now, so that no retention by time removes them."""
    base = int(time.time() * 1000) - count
    return [(i % PARTITIONS, Record(key(i), value(i), headers(i, null_header), base + i)) for i in range(count)]


def compare(sent, read):
    """None, or the first difference between the (partition, Record) pairs sent and {partition: [Record]} read."""
    expected = {p: [] for p in range(PARTITIONS)}
    for partition, record in sent:
        expected[partition].append(record)
    for partition, wanted in expected.items():
        got = read.get(partition, [])
        if len(got) != len(wanted):
            return f"partition {partition}: sent {len(wanted)} records, read {len(got)}"
        for at, (want, have) in enumerate(zip(wanted, got)):
            where = f"partition {partition}, record {at}"
            if have.offset != at:
                return f"{where}: offset {have.offset}"
            for name in ("key", "value", "headers", "timestamp"):
                a, b = getattr(want, name), getattr(have, name)
                if a != b:
                    return f"{where}: {name} sent {short(a)}, read {short(b)}"
    return None


def short(thing):
    text = repr(thing)
    return text if len(text) <= 120 else text[:120] + "…"


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic-prefix", required=True)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--codecs", default="")
    parser.add_argument("--acks", default="")
    return parser.parse_args()


def run(client, version, codecs, case, null_header=None):
    """Runs `case(bootstrap, topic, codec, acks, sent) -> {partition: [Record]}` for each codec and acks, and exits.

    `null_header` is what stands for a header without a value; a client that cannot send one passes b"".
    """
    options = arguments()
    failed = False
    for codec in [c for c in codecs if not options.codecs or c in options.codecs.split(",")]:
        for acks in [a for a in ACKS if not options.acks or a in options.acks.split(",")]:
            topic = f"{options.topic_prefix}-{client}-{codec}-{acks}"
            started = time.monotonic()
            sent = records(options.records, null_header)
            read, error = {}, None
            try:
                read = case(options.bootstrap, topic, codec, acks, sent)
                error = compare(sent, read)
            except Exception as problem:  # a failed case is a line of the table; the others still run
                error = f"{type(problem).__name__}: {problem}"
            failed = failed or error is not None
            report(client, version, codec, acks, len(sent), sum(map(len, read.values())), error, started)
    sys.exit(1 if failed else 0)


def report(client, version, codec, acks, produced, read, error, started):
    line = {"client": client, "version": version, "codec": codec, "acks": acks, "produced": produced, "read": read,
            "ok": error is None, "error": error, "seconds": round(time.monotonic() - started, 2)}
    print(json.dumps(line, ensure_ascii=False), flush=True)
