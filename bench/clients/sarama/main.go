// sarama: every codec, every acks, read back with assigned partitions; group.go has it as a member of a group.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"

	"penstock/clients/common"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var levels = map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}

func main() {
	if common.IsMember() {
		common.RunMember("github.com/IBM/sarama", true, startMember)
		return
	}
	sarama.Logger = log.New(io.Discard, "", 0)
	if len(os.Args) > 1 && os.Args[1] == "versions" {
		versions(os.Args[2:])
		return
	}
	common.Run("sarama", "github.com/IBM/sarama", []string{"none", "gzip", "snappy", "lz4", "zstd"}, common.Loose{}, roundTrip)
}

func roundTrip(ctx context.Context, bootstrap, topic, codec, acks string, sent []common.Record) ([]common.Record, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: common.Partitions, ReplicationFactor: 1}, false); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := waitForLeaders(ctx, client, topic, common.Partitions); err != nil {
		return nil, err
	}
	if err := produce(bootstrap, topic, codec, acks, sent); err != nil {
		return nil, fmt.Errorf("produce: %w", err)
	}
	read, err := consume(ctx, client, topic, len(sent))
	if err != nil {
		return read, fmt.Errorf("consume: %w", err)
	}
	return read, admin.DeleteTopic(topic)
}

// A topic's leaders may start after its creation is answered; acks=0 would lose what comes before.
func waitForLeaders(ctx context.Context, client sarama.Client, topic string, partitions int32) error {
	for p := range partitions {
		for {
			_, err := client.GetOffset(topic, p, sarama.OffsetNewest)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

func produce(bootstrap, topic, codec, acks string, sent []common.Record) error {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = codecs[codec]
	config.Producer.RequiredAcks = levels[acks]
	config.Producer.Idempotent = acks == "all"
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	producer, err := sarama.NewAsyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		var failure error
		for range sent {
			select {
			case <-producer.Successes():
			case err := <-producer.Errors():
				failure = err
			}
		}
		done <- failure
	}()
	for _, r := range sent {
		message := &sarama.ProducerMessage{Topic: topic, Partition: int32(r.Partition), Timestamp: time.UnixMilli(r.Time)}
		if r.Key != nil {
			message.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			message.Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		producer.Input() <- message
	}
	failure := <-done
	if err := producer.Close(); err != nil && failure == nil {
		failure = err
	}
	return failure
}

func consume(ctx context.Context, client sarama.Client, topic string, count int) ([]common.Record, error) {
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	messages := make(chan *sarama.ConsumerMessage, 1024)
	stop := make(chan struct{})
	defer close(stop)
	for p := range int32(common.Partitions) {
		partition, err := consumer.ConsumePartition(topic, p, 0)
		if err != nil {
			return nil, err
		}
		defer partition.AsyncClose()
		go func() {
			for message := range partition.Messages() {
				select {
				case messages <- message:
				case <-stop:
					return
				}
			}
		}()
	}
	var read []common.Record
	for {
		wait := 10 * time.Second
		if len(read) >= count {
			wait = 200 * time.Millisecond // nothing may come after the expected records
		}
		select {
		case m := <-messages:
			record := common.Record{Partition: int(m.Partition), Offset: m.Offset, Key: m.Key, Value: m.Value, Time: m.Timestamp.UnixMilli()}
			for _, h := range m.Headers {
				record.Headers = append(record.Headers, common.Header{Key: string(h.Key), Value: h.Value})
			}
			read = append(read, record)
		case <-time.After(wait):
			return read, nil
		case <-ctx.Done():
			return read, ctx.Err()
		}
	}
}
