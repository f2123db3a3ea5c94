"""kcat: 10,000 lines with keys, a header and nulls for each codec and acks into a topic that the broker creates by itself."""

import re
import subprocess
import time

import records

LIMIT_S = 60
# A byte that no key of the records below contains.
KEY_END = b"\x1f"
HEADERS = [("matrix", b"kcat"), ("пусто", b"")]


def kcat(bootstrap, *arguments, stdin=b""):
    done = subprocess.run(["kcat", "-b", bootstrap, *arguments], input=stdin, capture_output=True, timeout=LIMIT_S)
    if done.returncode:
        raise RuntimeError(f"kcat {' '.join(arguments)}: status {done.returncode}: {done.stderr.decode()[-300:]}")
    return done.stdout


def version():
    said = subprocess.run(["kcat", "-V"], capture_output=True).stdout.decode()
    return re.search(r"Version (\S+)", said).group(1) + "/" + re.search(r"librdkafka (\S+)", said).group(1)


def text(data):
    """What kcat can take as part of a line: an empty key or value is its way to write null, so neither is ever empty."""
    return data.replace(b"\n", b" ").replace(KEY_END, b" ") if data else None


def end_offset(bootstrap, topic):
    said = kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1")
    return int(re.search(rb"offset (-?\d+)", said).group(1))


def case(bootstrap, topic, codec, acks, sent):
    # Asking for the topic creates it; a partition without a leader yet would cost acks=0 its first records.
    kcat(bootstrap, "-L", "-t", topic)
    wait(lambda: end_offset(bootstrap, topic) == 0)
    lines = b"".join((r.key or b"") + KEY_END + (r.value or b"") + b"\n" for _, r in sent)
    flags = [flag for name, value in HEADERS for flag in ("-H", f"{name}={value.decode()}")]
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-Z", "-K", KEY_END.decode(), "-z", codec,
         "-X", f"request.required.acks={'-1' if acks == 'all' else acks}", "-X", "linger.ms=5",
         "-X", "max.in.flight.requests.per.connection=1", *flags, stdin=lines)
    wait(lambda: end_offset(bootstrap, topic) >= len(sent))
    output = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %T %K %S %h\n%k%s\n")
    return {0: parse(output, sent)}


def wait(done):
    for _ in range(400):
        try:
            if done():
                return
        except (RuntimeError, AttributeError):
            pass  # no leader yet
        time.sleep(0.05)
    raise RuntimeError("not there after 20 s and more")


def parse(output, sent):
    """The records in kcat's output. kcat cannot set timestamps: one within a minute of now counts as the one sent."""
    read, at = [], 0
    while at < len(output):
        end = output.index(b"\n", at)
        offset, timestamp, key_length, value_length, headers = output[at:end].split(b" ", 4)
        at = end + 1
        parts = []
        for length in (int(key_length), int(value_length)):
            parts.append(None if length < 0 else output[at:at + length])
            at += max(length, 0)
        at += 1
        read.append(records.Record(*parts, headers_of(headers), int(timestamp), int(offset)))
    now = time.time() * 1000
    for record, (_, original) in zip(read, sent):
        if abs(now - record.timestamp) < 60_000:
            record.timestamp = original.timestamp
    return read


def headers_of(shown):
    pairs = (pair.split("=", 1) for pair in shown.decode().split(",") if pair)
    return [(name, value.encode()) for name, value in pairs]


def lines_only(count, null_header, make=records.records):
    """The record set as kcat can send it: one partition, text lines, the same headers for all."""
    return [(0, records.Record(text(r.key), text(r.value), HEADERS, r.timestamp)) for _, r in make(count, null_header)]


records.records = lines_only
records.PARTITIONS = 1
records.run("kcat", version(), records.CODECS, case)
