package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/clients/common"
)

// member reads in a goroutine of its own; a rebalance waits until what was polled has been told.
type member struct {
	topic  string
	client *kgo.Client
	stop   chan struct{}
	done   chan struct{}

	mutex sync.Mutex
	read  map[int32]kgo.EpochOffset
}

func startMember(options common.MemberOptions) (common.Member, error) {
	m := &member{topic: options.Topic, stop: make(chan struct{}), done: make(chan struct{}), read: map[int32]kgo.EpochOffset{}}
	reset := map[string]kgo.Offset{"earliest": kgo.NewOffset().AtStart(), "latest": kgo.NewOffset().AtEnd(), "none": kgo.NoResetOffset()}
	balancer := kgo.RangeBalancer()
	if options.Cooperative {
		balancer = kgo.CooperativeStickyBalancer()
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(options.Bootstrap),
		kgo.ConsumerGroup(options.Group),
		kgo.ConsumeTopics(options.Topic),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(options.Session),
		kgo.HeartbeatInterval(options.Heartbeat),
		kgo.ConsumeResetOffset(reset[options.Reset]),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
			_, generation := client.GroupMetadata()
			if got := partitions[options.Topic]; len(got) > 0 {
				common.Assigned(got, generation)
			}
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
			if options.AutoCommit {
				if err := client.CommitUncommittedOffsets(ctx); err != nil {
					common.Failed(err)
				}
			}
			m.forget(partitions[options.Topic])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			m.forget(partitions[options.Topic])
		}),
	}
	if options.AutoCommit {
		opts = append(opts, kgo.AutoCommitInterval(common.AutoCommit))
	} else {
		opts = append(opts, kgo.DisableAutoCommit())
	}
	if options.Instance != "" {
		opts = append(opts, kgo.InstanceID(options.Instance))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	m.client = client
	go m.poll()
	return m, nil
}

func (m *member) forget(partitions []int32) {
	m.mutex.Lock()
	for _, p := range partitions {
		delete(m.read, p)
	}
	m.mutex.Unlock()
	if len(partitions) > 0 {
		common.Revoked(partitions)
	}
}

func (m *member) poll() {
	defer close(m.done)
	for {
		select {
		case <-m.stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := m.client.PollFetches(ctx)
		ended := ctx.Err() != nil
		cancel()
		if err := fetches.Err0(); err != nil && !ended {
			common.Failed(err)
		}
		for _, problem := range fetches.Errors() {
			if problem.Err != context.DeadlineExceeded {
				common.Failed(problem.Err)
			}
		}
		m.mutex.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			common.Read(r.Partition, r.Offset, r.Value)
			m.read[r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
		})
		m.mutex.Unlock()
		m.client.AllowRebalance()
	}
}

func (m *member) Commit(note string) (bool, error) {
	m.mutex.Lock()
	offsets := map[int32]kgo.EpochOffset{}
	for p, offset := range m.read {
		offsets[p] = offset
	}
	m.mutex.Unlock()
	ctx := kgo.PreCommitFnContext(context.Background(), func(request *kmsg.OffsetCommitRequest) error {
		for t := range request.Topics {
			for p := range request.Topics[t].Partitions {
				request.Topics[t].Partitions[p].Metadata = &note
			}
		}
		return nil
	})
	var failure error
	m.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{m.topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
			failure = err
		})
	return true, failure
}

func (m *member) Seek(partition int32, offset int64) error {
	m.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{m.topic: {partition: {Epoch: -1, Offset: offset}}})
	return nil
}

func (m *member) Pause(partition int32) error {
	m.client.PauseFetchPartitions(map[string][]int32{m.topic: {partition}})
	return nil
}

func (m *member) Resume(partition int32) error {
	m.client.ResumeFetchPartitions(map[string][]int32{m.topic: {partition}})
	return nil
}

func (m *member) Close() error {
	close(m.stop)
	<-m.done
	m.client.CloseAllowingRebalance()
	return nil
}
