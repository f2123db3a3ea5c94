// franz-go: every codec, every acks, read back with assigned partitions; group.go has it as a member of a group.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/clients/common"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	if common.IsMember() {
		common.RunMember("github.com/twmb/franz-go", true, startMember)
		return
	}
	common.Run("franz-go", "github.com/twmb/franz-go", []string{"none", "gzip", "snappy", "lz4", "zstd"}, common.Loose{}, roundTrip)
}

func roundTrip(ctx context.Context, bootstrap, topic, codec, acks string, sent []common.Record) ([]common.Record, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, common.Partitions, 1, nil, topic); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if err := waitForLeaders(ctx, admin, topic); err != nil {
		return nil, err
	}
	if err := produce(ctx, bootstrap, topic, codec, acks, sent); err != nil {
		return nil, fmt.Errorf("produce: %w", err)
	}
	read, err := consume(ctx, bootstrap, topic, len(sent))
	if err != nil {
		return read, fmt.Errorf("consume: %w", err)
	}
	_, err = admin.DeleteTopic(ctx, topic)
	return read, err
}

// A topic's leaders may start after its creation is answered; acks=0 would lose what comes before.
func waitForLeaders(ctx context.Context, admin *kadm.Client, topic string) error {
	for {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func produce(ctx context.Context, bootstrap, topic, codec, acks string, sent []common.Record) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[codec]),
		kgo.ProducerLinger(5 * time.Millisecond),
	}
	switch acks {
	case "0":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	default:
		options = append(options, kgo.RequiredAcks(kgo.AllISRAcks()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(sent))
	for _, r := range sent {
		record := &kgo.Record{Partition: int32(r.Partition), Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Time)}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		records = append(records, record)
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return client.Flush(ctx)
}

func consume(ctx context.Context, bootstrap, topic string, count int) ([]common.Record, error) {
	offsets := map[int32]kgo.Offset{}
	for p := range int32(common.Partitions) {
		offsets[p] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var read []common.Record
	for {
		wait := 10 * time.Second
		if len(read) >= count {
			wait = 200 * time.Millisecond // nothing may come after the expected records
		}
		poll, cancel := context.WithTimeout(ctx, wait)
		fetches := client.PollFetches(poll)
		ended := poll.Err() != nil
		cancel()
		if !ended {
			if err := fetches.Err(); err != nil {
				return read, err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			record := common.Record{Partition: int(r.Partition), Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.Timestamp.UnixMilli()}
			for _, h := range r.Headers {
				record.Headers = append(record.Headers, common.Header{Key: h.Key, Value: h.Value})
			}
			read = append(read, record)
		})
		if ended {
			return read, ctx.Err()
		}
	}
}
