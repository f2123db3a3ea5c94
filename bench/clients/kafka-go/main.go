// segmentio kafka-go: every codec, every acks, read back with assigned partitions; group.go has it as a member of a group.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"penstock/clients/common"
)

var codecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

var levels = map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}

func main() {
	if common.IsMember() {
		common.RunMember("github.com/segmentio/kafka-go", !common.HasTool("reader"), startMember)
		return
	}
	common.Run("kafka-go", "github.com/segmentio/kafka-go", []string{"none", "gzip", "snappy", "lz4", "zstd"}, common.Loose{}, roundTrip)
}

func roundTrip(ctx context.Context, bootstrap, topic, codec, acks string, sent []common.Record) ([]common.Record, error) {
	// A transport of its own: the default one keeps the metadata of earlier cases.
	transport := &kafka.Transport{MetadataTTL: time.Second}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(bootstrap), Transport: transport}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: common.Partitions, ReplicationFactor: 1}},
	})
	if err == nil {
		err = created.Errors[topic]
	}
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if err := waitForLeaders(ctx, client, topic); err != nil {
		return nil, err
	}
	if err := produce(ctx, transport, bootstrap, topic, codec, acks, sent); err != nil {
		return nil, fmt.Errorf("produce: %w", err)
	}
	var read, fetched []common.Record
	for p := range common.Partitions {
		count := (len(sent) - p + common.Partitions - 1) / common.Partitions
		records, err := consume(ctx, bootstrap, topic, p, count)
		read = append(read, records...)
		if err != nil {
			return read, fmt.Errorf("consume: %w", err)
		}
		if fetched, err = fetch(ctx, client, topic, p, count, fetched); err != nil {
			return fetched, fmt.Errorf("fetch: %w", err)
		}
	}
	if acks == "0" {
		inTheOrderSent(read)
		inTheOrderSent(fetched)
	}
	if err := common.Compare(sent, read, common.Loose{NilIsEmpty: true}); err != nil {
		return read, fmt.Errorf("read with a Reader: %w", err)
	}
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err == nil {
		err = deleted.Errors[topic]
	}
	return fetched, err
}

// inTheOrderSent undoes what this client does to order: without answers to wait for, it spreads the batches of one partition over
// several connections. Records keep their partition's set of offsets, so that a gap or a duplicate still shows.
func inTheOrderSent(read []common.Record) {
	slices.SortStableFunc(read, func(a, b common.Record) int { return cmp.Compare(a.Partition, b.Partition) })
	offsets := make([]int64, len(read))
	for i, r := range read {
		offsets[i] = r.Offset
	}
	slices.SortStableFunc(read, func(a, b common.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Time, b.Time))
	})
	for i := range read {
		read[i].Offset = offsets[i]
	}
}

// A topic's leaders may start after its creation is answered; acks=0 would lose what comes before.
func waitForLeaders(ctx context.Context, client *kafka.Client, topic string) error {
	request := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{}}
	for p := range common.Partitions {
		request.Topics[topic] = append(request.Topics[topic], kafka.LastOffsetOf(p))
	}
	for {
		answer, err := client.ListOffsets(ctx, request)
		if err == nil {
			for _, p := range answer.Topics[topic] {
				err = errors.Join(err, p.Error)
			}
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// byHeader sends each message to the partition that its WriterData names.
var byHeader = kafka.BalancerFunc(func(message kafka.Message, _ ...int) int {
	return message.WriterData.(int)
})

func produce(ctx context.Context, transport *kafka.Transport, bootstrap, topic, codec, acks string, sent []common.Record) error {
	writer := &kafka.Writer{
		Addr:         kafka.TCP(bootstrap),
		Transport:    transport,
		Topic:        topic,
		Balancer:     byHeader,
		BatchSize:    1000,
		BatchBytes:   512 * 1024,
		BatchTimeout: 5 * time.Millisecond,
		RequiredAcks: levels[acks],
		Compression:  codecs[codec],
	}
	messages := make([]kafka.Message, 0, len(sent))
	for _, r := range sent {
		message := kafka.Message{Key: r.Key, Value: r.Value, Time: time.UnixMilli(r.Time), WriterData: r.Partition}
		for _, h := range r.Headers {
			message.Headers = append(message.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		messages = append(messages, message)
	}
	err := writer.WriteMessages(ctx, messages...)
	return errors.Join(err, writer.Close())
}

func consume(ctx context.Context, bootstrap, topic string, partition, count int) ([]common.Record, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: topic, Partition: partition, MinBytes: 1, MaxBytes: 4 << 20, MaxWait: 500 * time.Millisecond,
	})
	defer reader.Close()
	if err := reader.SetOffset(0); err != nil {
		return nil, err
	}
	var read []common.Record
	for {
		wait := 10 * time.Second
		if len(read) >= count {
			wait = 100 * time.Millisecond // nothing may come after the expected records
		}
		one, cancel := context.WithTimeout(ctx, wait)
		m, err := reader.ReadMessage(one)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return read, ctx.Err()
		}
		if err != nil {
			return read, err
		}
		if m.Topic != topic || m.Partition != partition {
			return read, errors.New("read " + m.Topic + " " + strconv.Itoa(m.Partition))
		}
		record := common.Record{Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value, Time: m.Time.UnixMilli()}
		for _, h := range m.Headers {
			record.Headers = append(record.Headers, common.Header{Key: h.Key, Value: h.Value})
		}
		read = append(read, record)
	}
}

// fetch reads a partition through the client's lower interface: unlike a Reader, it tells null from empty.
func fetch(ctx context.Context, client *kafka.Client, topic string, partition, count int, read []common.Record) ([]common.Record, error) {
	for offset := int64(0); offset < int64(count); {
		answer, err := client.Fetch(ctx, &kafka.FetchRequest{
			Topic: topic, Partition: partition, Offset: offset, MinBytes: 1, MaxBytes: 4 << 20, MaxWait: time.Second,
		})
		if err == nil {
			err = answer.Error
		}
		if err != nil {
			return read, err
		}
		for {
			r, err := answer.Records.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return read, err
			}
			if r.Offset < offset {
				continue // a fetch in the middle of a batch returns the whole batch
			}
			record, err := copied(r, partition)
			if err != nil {
				return read, err
			}
			read = append(read, record)
			offset = r.Offset + 1
		}
	}
	return read, nil
}

func copied(r *kafka.Record, partition int) (common.Record, error) {
	record := common.Record{Partition: partition, Offset: r.Offset, Time: r.Time.UnixMilli()}
	var err error
	if r.Key != nil {
		if record.Key, err = kafka.ReadAll(r.Key); err != nil {
			return record, err
		}
	}
	if r.Value != nil {
		if record.Value, err = kafka.ReadAll(r.Value); err != nil {
			return record, err
		}
	}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, common.Header{Key: h.Key, Value: h.Value})
	}
	return record, nil
}
