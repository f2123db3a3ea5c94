/*
 * Produces records of one size to one topic as fast as librdkafka goes, waits for every answer, and prints one line of JSON:
 *   produce BOOTSTRAP TOPIC RECORD_BYTES WARMUP_SECONDS SECONDS RECORDS_MAX ACKS RECORDS_PER_SECOND [PROPERTY=VALUE ...]
 * The warm-up is not part of the figures; between it and the measured part the program waits for a line on standard input. Each of
 * the two ends after its time, or after RECORDS_MAX records. RECORDS_PER_SECOND paces both; 0 is as fast as it goes. The delivery
 * latency of one record in SAMPLE is taken. `produce version` prints the version of librdkafka.
 */
#include <librdkafka/rdkafka.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define FLUSH_LIMIT_MS 120000
/* A prime, so that the samples are not in step with the calls of rd_kafka_poll. */
#define SAMPLE 61

static uint64_t delivered, failed;
/* Of each sample the time of its produce call, and from its answer on its latency, both in seconds. */
static double *samples;
static rd_kafka_resp_err_t first_error;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "produce: %s: %s\n", what, why);
    exit(1);
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void answered(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque) {
    (void)producer;
    (void)opaque;
    if (message->err) {
        failed++;
        if (!first_error) first_error = message->err;
        return;
    }
    delivered++;
    double *sample = message->_private;
    if (sample) *sample = seconds_now() - *sample;
}

static int by_size(const void *one, const void *two) {
    double a = *(const double *)one, b = *(const double *)two;
    return (a > b) - (a < b);
}

/* The nearest-rank percentile of the sorted samples, in milliseconds; 0 of none. */
static double percentile(uint64_t count, double percent) {
    if (!count) return 0;
    uint64_t rank = (uint64_t)(percent / 100 * (double)count);
    return samples[rank < count ? rank : count - 1] * 1e3;
}

static double cpu_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* The payload is shared by all records and outlives them, so librdkafka need not copy it; it is noise, so nothing compresses it. */
static char *payload_of(size_t size) {
    char *payload = malloc(size);
    if (!payload) fail("payload", "no memory");
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        payload[i] = (char)state;
    }
    return payload;
}

/* Sends for so many seconds, and no more than `count` records. How many it were. */
static uint64_t send_all(rd_kafka_t *producer, rd_kafka_topic_t *topic, char *payload, size_t size, double seconds, uint64_t count,
                         uint64_t per_second) {
    double started = seconds_now();
    uint64_t sent = 0;
    int may_be_over = 1;
    while (sent < count) {
        if ((per_second || may_be_over) && seconds_now() - started >= seconds) break;
        if (per_second) {
            double ahead = (double)sent / (double)per_second - (seconds_now() - started);
            if (ahead > 0) {
                /* Sleeping whole milliseconds leaves the processors to the broker; what is due then goes at once. */
                rd_kafka_poll(producer, 1);
                continue;
            }
        }
        double *sample = samples && sent % SAMPLE == 0 ? &samples[sent / SAMPLE] : NULL;
        /* Again after a full queue: the wait in this program's own loop is not the broker's. */
        if (sample) *sample = seconds_now();
        if (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, 0, payload, size, NULL, 0, sample) == 0) {
            sent++;
            may_be_over = sent % 64 == 0;
            if (sent % 256 == 0) rd_kafka_poll(producer, 0);
        } else if (rd_kafka_last_error() == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            may_be_over = 1;
            rd_kafka_poll(producer, 5);
        } else {
            fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
        }
    }
    if (rd_kafka_flush(producer, FLUSH_LIMIT_MS)) fail("flush", "records without an answer");
    if (failed) fail("delivery", rd_kafka_err2str(first_error));
    return sent;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) fail(name, why);
}

static double fraction(const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || value < 0) fail(text, "is no number of seconds");
    return value;
}

static uint64_t number(const char *text) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || end == text) fail(text, "is no number");
    return value;
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "version")) {
        puts(rd_kafka_version_str());
        return 0;
    }
    if (count < 9) fail("usage", "produce BOOTSTRAP TOPIC RECORD_BYTES WARMUP_SECONDS SECONDS RECORDS_MAX ACKS RECORDS_PER_SECOND [PROPERTY=VALUE ...]");
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", arguments[1]);
    set(conf, "acks", arguments[7]);
    set(conf, "queue.buffering.max.messages", "400000");
    set(conf, "queue.buffering.max.kbytes", "524288");
    for (int i = 9; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value) fail(arguments[i], "is not PROPERTY=VALUE");
        *value = 0;
        set(conf, arguments[i], value + 1);
    }
    rd_kafka_conf_set_dr_msg_cb(conf, answered);
    char why[512];
    rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!producer) fail("producer", why);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, arguments[2], NULL);
    if (!topic) fail("topic", rd_kafka_err2str(rd_kafka_last_error()));
    size_t size = number(arguments[3]);
    double warmup = fraction(arguments[4]), seconds = fraction(arguments[5]);
    uint64_t records_max = number(arguments[6]), per_second = number(arguments[8]);
    char *payload = payload_of(size);

    send_all(producer, topic, payload, size, warmup, records_max, per_second);
    puts("warm");
    fflush(stdout);
    char line[16];
    if (!fgets(line, sizeof line, stdin)) fail("standard input", "closed before the measured part");
    delivered = 0;
    samples = calloc(records_max / SAMPLE + 2, sizeof *samples);
    if (!samples) fail("samples", "no memory");
    double started = seconds_now(), cpu = cpu_seconds();
    uint64_t sent = send_all(producer, topic, payload, size, seconds, records_max, per_second);
    double took = seconds_now() - started;
    cpu = cpu_seconds() - cpu;
    uint64_t sampled = (sent + SAMPLE - 1) / SAMPLE;
    qsort(samples, sampled, sizeof *samples, by_size);
    printf("{\"bytes\":%llu,\"seconds\":%.3f,\"client_cpu_seconds\":%.2f,\"latency_ms\":[%.3f,%.3f,%.3f]}\n",
           (unsigned long long)(delivered * size), took, cpu, percentile(sampled, 50), percentile(sampled, 99),
           percentile(sampled, 99.9));
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(producer);
    free(payload);
    free(samples);
    return 0;
}
