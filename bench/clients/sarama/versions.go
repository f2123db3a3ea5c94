package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	versionRecords = 20
	versionTimeout = 20 * time.Second
	versionsAtOnce = 16
)

var (
	// The first release whose Produce, Fetch and CreateTopics Apache Kafka 4 still serves; what came before is refused today.
	firstServed = sarama.V0_11_0_0
	// The same for DescribeConfigs.
	firstDescribed = sarama.V1_1_0_0
)

type versionLine struct {
	Version string  `json:"version"`
	Served  bool    `json:"served"`
	OK      bool    `json:"ok"`
	InTime  bool    `json:"in_time"`
	Error   *string `json:"error"`
}

// versions configures sarama as a client of each Kafka release it knows, with and without asking for ApiVersions: a topic is
// made, a few records are produced, one by one and as a batch of an idempotent producer, fetched and committed (BR-037). It
// prints a line of JSON for each, and ends with 1 when one is not as it should be: all works from 0.11 on, and what came
// before fails within its time.
func versions(arguments []string) {
	flags := flag.NewFlagSet("versions", flag.ExitOnError)
	bootstrap := flags.String("bootstrap", "", "HOST:PORT of a broker")
	prefix := flags.String("topic-prefix", "", "what the names of the topics begin with")
	_ = flags.Parse(arguments)
	var (
		lock   sync.Mutex
		group  sync.WaitGroup
		failed bool
	)
	slots := make(chan struct{}, versionsAtOnce)
	for _, version := range sarama.SupportedVersions {
		for _, asks := range []bool{true, false} {
			group.Add(1)
			slots <- struct{}{}
			go func() {
				defer func() { <-slots; group.Done() }()
				name := version.String()
				if !asks {
					name += "-unasked"
				}
				err := bounded(*bootstrap, *prefix+"-"+name, version, asks)
				line := versionLine{Version: name, Served: version.IsAtLeast(firstServed), OK: err == nil, InTime: !errors.Is(err, context.DeadlineExceeded)}
				if err != nil {
					message := err.Error()
					line.Error = &message
				}
				out, _ := json.Marshal(line)
				lock.Lock()
				defer lock.Unlock()
				fmt.Println(string(out))
				failed = failed || line.OK != line.Served || !line.InTime
			}()
		}
	}
	group.Wait()
	if failed {
		os.Exit(1)
	}
}

// A client that hangs is as wrong as one that fails.
func bounded(bootstrap, topic string, version sarama.KafkaVersion, asks bool) error {
	done := make(chan error, 1)
	go func() { done <- oneVersion(bootstrap, topic, version, asks) }()
	select {
	case err := <-done:
		return err
	case <-time.After(versionTimeout):
		return context.DeadlineExceeded
	}
}

func oneVersion(bootstrap, topic string, version sarama.KafkaVersion, asks bool) error {
	config := sarama.NewConfig()
	config.Version = version
	config.ApiVersionsRequest = asks
	config.Admin.Retry.Max = 1
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Metadata.Retry.Max = 1
	config.Producer.Retry.Max = 1
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.ReadTimeout = 5 * time.Second
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout/2)
	defer cancel()
	if err := waitForLeaders(ctx, client, topic, 1); err != nil {
		return fmt.Errorf("leaders: %w", err)
	}
	if err := produceSome(bootstrap, topic, config); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if err := readSome(bootstrap, topic, config); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	if version.IsAtLeast(firstDescribed) {
		if _, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}); err != nil {
			return fmt.Errorf("describe: %w", err)
		}
	}
	// Apache Kafka makes the offsets' topic at the first request for a coordinator, and takes a moment.
	for started := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := commitSome(admin, client, topic)
		if err == nil {
			break
		}
		if time.Since(started) > versionTimeout/2 {
			return fmt.Errorf("commit: %w", err)
		}
	}
	if err := admin.DeleteTopic(topic); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

func produceSome(bootstrap, topic string, base *sarama.Config) error {
	config := *base
	config.Producer.Idempotent = config.Version.IsAtLeast(firstServed)
	if config.Producer.Idempotent {
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, &config)
	if err != nil {
		return err
	}
	defer producer.Close()
	message := func(i int) *sarama.ProducerMessage {
		return &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(i))}
	}
	var batch []*sarama.ProducerMessage
	for i := range versionRecords {
		if i >= versionRecords/2 {
			batch = append(batch, message(i))
			continue
		}
		if _, offset, err := producer.SendMessage(message(i)); err != nil || offset != int64(i) {
			return fmt.Errorf("record %d got offset %d: %w", i, offset, err)
		}
	}
	return producer.SendMessages(batch)
}

func readSome(bootstrap, topic string, config *sarama.Config) error {
	consumer, err := sarama.NewConsumer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	for i := range versionRecords {
		select {
		case m := <-partition.Messages():
			if m.Offset != int64(i) || string(m.Value) != fmt.Sprint(i) {
				return fmt.Errorf("record %d came at %d as %q", i, m.Offset, m.Value)
			}
		case <-time.After(versionTimeout / 2):
			return fmt.Errorf("%d of %d records came", i, versionRecords)
		}
	}
	return nil
}

func commitSome(admin sarama.ClusterAdmin, client sarama.Client, topic string) error {
	manager, err := sarama.NewOffsetManagerFromClient(topic, client)
	if err != nil {
		return err
	}
	defer manager.Close()
	partition, err := manager.ManagePartition(topic, 0)
	if err != nil {
		return err
	}
	defer partition.Close()
	partition.MarkOffset(versionRecords, "here")
	manager.Commit()
	stored, err := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0}})
	if err != nil {
		return err
	}
	if block := stored.GetBlock(topic, 0); block == nil || block.Offset != versionRecords || block.Metadata != "here" {
		return fmt.Errorf("committed %+v", block)
	}
	return nil
}
