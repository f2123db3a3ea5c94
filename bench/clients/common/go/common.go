// Package common holds the records that every Go client of the matrix sends, and the comparison of what came back.
// README.md of the clients folder describes the record set; the Python, JavaScript and Java programs make the same one.
package common

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// Partitions of every topic.
const Partitions = 4

const (
	largeBytes    = 100_000
	mediumBytes   = 10_000
	smallBytesMax = 700
	caseTimeout   = 2 * time.Minute
)

// Header of a record; a nil value is sent as null.
type Header struct {
	Key   string
	Value []byte
}

// Record as sent or read. A nil key or value is null, an empty one is not. Time is in milliseconds.
type Record struct {
	Partition int
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	Time      int64
}

var (
	text  = block(15)
	noise = block(255)
)

// block makes 128 KiB; a mask of 15 leaves four random bits a byte, so that it compresses.
func block(mask byte) []byte {
	state, out := uint32(0x2545F491), make([]byte, 128*1024)
	for i := range out {
		state = state*1664525 + 1013904223
		out[i] = byte(state >> 24)
		if mask != 255 {
			out[i] = 97 + out[i]&mask
		}
	}
	return out
}

func valueBytes(i, length int) []byte {
	source := text
	if i%2 == 1 {
		source = noise
	}
	start := i * 7919 % (len(source) - largeBytes)
	return source[start : start+length]
}

func key(i int) []byte {
	switch i % 6 {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return fmt.Appendf(nil, "key-%d", i)
	case 3:
		return fmt.Appendf(nil, "ключ-鍵-🔑-%d", i)
	case 4:
		return noise[i : i+8]
	}
	return fmt.Appendf(nil, "k%d", i%50)
}

func value(i int) []byte {
	switch {
	case i%1000 == 7:
		return valueBytes(i, largeBytes)
	case i%100 == 8:
		return valueBytes(i, mediumBytes)
	case i%10 == 1:
		return nil
	case i%10 == 2:
		return []byte{}
	case i%10 == 3:
		return fmt.Appendf(nil, "значение %d 値 ✓ \x00 \u2028 end", i)
	}
	return valueBytes(i, 1+i*31%smallBytesMax)
}

func headers(i int) []Header {
	switch i % 4 {
	case 1:
		return []Header{{"trace", fmt.Appendf(nil, "id-%d", i)}}
	case 2:
		return []Header{{"a", []byte{0, 255}}, {"a", []byte("second")}, {"пусто", []byte{}}}
	case 3:
		return []Header{{"null", nil}, {"n", fmt.Appendf(nil, "%d", i)}}
	}
	return nil
}

// Records makes the record set. Timestamps end now, so that no retention by time removes them.
func Records(count int) []Record {
	base := time.Now().UnixMilli() - int64(count)
	out := make([]Record, count)
	for i := range out {
		out[i] = Record{Partition: i % Partitions, Key: key(i), Value: value(i), Headers: headers(i), Time: base + int64(i)}
	}
	return out
}

// Loose says which differences a client's interface cannot show.
type Loose struct {
	NilIsEmpty       bool // keys, values and header values of length zero
	NilHeaderIsEmpty bool // header values only
}

// Compare tells the first difference between what was sent and what was read.
func Compare(sent, read []Record, loose Loose) error {
	var want, have [Partitions][]Record
	for _, r := range sent {
		want[r.Partition] = append(want[r.Partition], r)
	}
	for _, r := range read {
		if r.Partition < 0 || r.Partition >= Partitions {
			return fmt.Errorf("read a record of partition %d", r.Partition)
		}
		have[r.Partition] = append(have[r.Partition], r)
	}
	for p := range want {
		if len(want[p]) != len(have[p]) {
			return fmt.Errorf("partition %d: sent %d records, read %d", p, len(want[p]), len(have[p]))
		}
		for at, w := range want[p] {
			if err := compareOne(w, have[p][at], int64(at), loose); err != nil {
				return fmt.Errorf("partition %d, record %d: %w", p, at, err)
			}
		}
	}
	return nil
}

func compareOne(w, h Record, offset int64, loose Loose) error {
	headerLoose := loose.NilIsEmpty || loose.NilHeaderIsEmpty
	switch {
	case h.Offset != offset:
		return fmt.Errorf("offset %d", h.Offset)
	case !same(w.Key, h.Key, loose.NilIsEmpty):
		return fmt.Errorf("key sent %.60q (nil %t), read %.60q (nil %t)", w.Key, w.Key == nil, h.Key, h.Key == nil)
	case !same(w.Value, h.Value, loose.NilIsEmpty):
		return fmt.Errorf("value sent %.60q (nil %t), read %.60q (nil %t)", w.Value, w.Value == nil, h.Value, h.Value == nil)
	case w.Time != h.Time:
		return fmt.Errorf("timestamp sent %d, read %d", w.Time, h.Time)
	case len(w.Headers) != len(h.Headers):
		return fmt.Errorf("%d headers sent, %d read", len(w.Headers), len(h.Headers))
	}
	for i, header := range w.Headers {
		if header.Key != h.Headers[i].Key || !same(header.Value, h.Headers[i].Value, headerLoose) {
			return fmt.Errorf("header sent %.80q, read %.80q", header, h.Headers[i])
		}
	}
	return nil
}

func same(a, b []byte, loose bool) bool {
	return bytes.Equal(a, b) && (loose || (a == nil) == (b == nil))
}

// Case sends records to a new topic with a codec and acks ("0", "1" or "all"), and reads the topic back.
type Case func(ctx context.Context, bootstrap, topic, codec, acks string, sent []Record) ([]Record, error)

type line struct {
	Client   string  `json:"client"`
	Version  string  `json:"version"`
	Codec    string  `json:"codec"`
	Acks     string  `json:"acks"`
	Produced int     `json:"produced"`
	Read     int     `json:"read"`
	OK       bool    `json:"ok"`
	Error    *string `json:"error"`
	Seconds  float64 `json:"seconds"`
}

// Run does every case of a client, prints a line for each, and ends the process with 1 if one failed.
func Run(client, module string, codecs []string, loose Loose, one Case) {
	bootstrap := flag.String("bootstrap", "", "HOST:PORT of a broker")
	prefix := flag.String("topic-prefix", "", "what the names of the topics begin with")
	count := flag.Int("records", 10_000, "records of each case")
	onlyCodecs := flag.String("codecs", "", "only these, by comma")
	onlyAcks := flag.String("acks", "", "only these, by comma")
	flag.Parse()
	failed := false
	for _, codec := range codecs {
		for _, acks := range []string{"0", "1", "all"} {
			if !wanted(*onlyCodecs, codec) || !wanted(*onlyAcks, acks) {
				continue
			}
			started := time.Now()
			topic := strings.Join([]string{*prefix, client, codec, acks}, "-")
			sent := Records(*count)
			ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
			read, err := one(ctx, *bootstrap, topic, codec, acks, sent)
			cancel()
			if err == nil {
				err = Compare(sent, read, loose)
			}
			l := line{client, version(module), codec, acks, len(sent), len(read), err == nil, nil, float64(time.Since(started).Milliseconds()/10) / 100}
			if err != nil {
				failed = true
				message := err.Error()
				l.Error = &message
			}
			out, _ := json.Marshal(l)
			fmt.Println(string(out))
		}
	}
	if failed {
		os.Exit(1)
	}
}

func wanted(list, name string) bool {
	if list == "" {
		return true
	}
	for _, one := range strings.Split(list, ",") {
		if one == name {
			return true
		}
	}
	return false
}

func version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, d := range info.Deps {
			if d.Path == module {
				return strings.TrimPrefix(d.Version, "v")
			}
		}
	}
	return "unknown"
}
