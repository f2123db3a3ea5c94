package main

import (
	"context"
	"errors"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"penstock/clients/common"
)

var starts = map[string]int64{"earliest": kafka.FirstOffset, "latest": kafka.LastOffset, "none": kafka.FirstOffset}

func startMember(options common.MemberOptions) (common.Member, error) {
	if options.Cooperative {
		common.Absent("kafka-go has no cooperative balancer")
	}
	if options.Instance != "" {
		common.Absent("kafka-go has no group.instance.id")
	}
	if options.Tool == "reader" {
		return startReader(options)
	}
	return startGenerations(options)
}

// generations is a member on the client's lower interface: a generation at a time, with a reader for each partition of it.
type generations struct {
	options common.MemberOptions
	group   *kafka.ConsumerGroup
	ended   chan struct{}

	mutex   sync.Mutex
	current *kafka.Generation
	read    map[int]int64
	seeks   map[int]chan int64
	paused  map[int]bool
}

func startGenerations(options common.MemberOptions) (common.Member, error) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: options.Group, Brokers: []string{options.Bootstrap}, Topics: []string{options.Topic},
		GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}}, HeartbeatInterval: options.Heartbeat,
		SessionTimeout: options.Session, JoinGroupBackoff: 500 * time.Millisecond, StartOffset: starts[options.Reset],
	})
	if err != nil {
		return nil, err
	}
	g := &generations{options: options, group: group, ended: make(chan struct{}), paused: map[int]bool{}}
	go g.run()
	return g, nil
}

func (g *generations) run() {
	defer close(g.ended)
	for {
		generation, err := g.group.Next(context.Background())
		if errors.Is(err, kafka.ErrGroupClosed) {
			return
		}
		if err != nil {
			common.Failed(err)
			continue
		}
		g.take(generation)
	}
}

// take starts a reader for each partition, and commits by itself until all of them have ended.
func (g *generations) take(generation *kafka.Generation) {
	g.mutex.Lock()
	g.current, g.read, g.seeks = generation, map[int]int64{}, map[int]chan int64{}
	var readers sync.WaitGroup
	for _, assigned := range generation.Assignments[g.options.Topic] {
		g.seeks[assigned.ID] = make(chan int64, 1)
		readers.Add(1)
		common.Assigned([]int32{int32(assigned.ID)}, generation.ID)
		seeks := g.seeks[assigned.ID]
		generation.Start(func(ctx context.Context) {
			defer readers.Done()
			g.readPartition(ctx, assigned, seeks)
			if !g.options.AutoCommit {
				common.Revoked([]int32{int32(assigned.ID)})
			}
		})
	}
	g.mutex.Unlock()
	if !g.options.AutoCommit {
		return
	}
	generation.Start(func(ctx context.Context) {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(common.AutoCommit):
				g.commit()
			}
		}
		readers.Wait()
		g.commit()
		for _, assigned := range generation.Assignments[g.options.Topic] {
			common.Revoked([]int32{int32(assigned.ID)})
		}
	})
}

func (g *generations) readPartition(ctx context.Context, assigned kafka.PartitionAssignment, seeks chan int64) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{g.options.Bootstrap}, Topic: g.options.Topic, Partition: assigned.ID,
		MinBytes: 1, MaxBytes: 4 << 20, MaxWait: 100 * time.Millisecond, OffsetOutOfRangeError: true,
	})
	defer reader.Close()
	if err := reader.SetOffset(assigned.Offset); err != nil {
		common.Failed(err)
	}
	for ctx.Err() == nil {
		select {
		case offset := <-seeks:
			if err := reader.SetOffset(offset); err != nil {
				common.Failed(err)
			}
		default:
		}
		g.mutex.Lock()
		paused := g.paused[assigned.ID]
		g.mutex.Unlock()
		if paused {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		one, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		message, err := reader.ReadMessage(one)
		cancel()
		switch {
		case err == nil:
			common.Read(int32(message.Partition), message.Offset, message.Value)
			g.mutex.Lock()
			g.read[message.Partition] = message.Offset + 1
			g.mutex.Unlock()
		case errors.Is(err, kafka.OffsetOutOfRange) && g.options.Reset != "none":
			err = reader.SetOffset(starts[g.options.Reset])
		case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
			err = nil
		}
		if err != nil {
			common.Failed(err)
			return
		}
	}
}

func (g *generations) commit() {
	g.mutex.Lock()
	offsets := map[int]int64{}
	for p, offset := range g.read {
		offsets[p] = offset
	}
	current := g.current
	g.mutex.Unlock()
	if len(offsets) > 0 {
		if err := current.CommitOffsets(map[string]map[int]int64{g.options.Topic: offsets}); err != nil {
			common.Failed(err)
		}
	}
}

func (g *generations) Commit(string) (bool, error) {
	g.commit()
	return false, nil
}

func (g *generations) Seek(partition int32, offset int64) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	seeks, owned := g.seeks[int(partition)]
	if !owned {
		return errors.New("not owned")
	}
	seeks <- offset
	return nil
}

// Pause is the program's own: it stops to read.
func (g *generations) Pause(partition int32) error {
	g.setPaused(partition, true)
	return nil
}

func (g *generations) Resume(partition int32) error {
	g.setPaused(partition, false)
	return nil
}

func (g *generations) setPaused(partition int32, paused bool) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.paused[int(partition)] = paused
}

func (g *generations) Close() error {
	err := g.group.Close()
	<-g.ended
	return err
}

// reader is a member as most programs are: a Reader with a group.
type reader struct {
	reader *kafka.Reader
	cancel context.CancelFunc
	ended  chan struct{}

	mutex sync.Mutex
	last  map[int]kafka.Message
}

func startReader(options common.MemberOptions) (common.Member, error) {
	config := kafka.ReaderConfig{
		Brokers: []string{options.Bootstrap}, GroupID: options.Group, Topic: options.Topic, MinBytes: 1, MaxBytes: 4 << 20,
		MaxWait: 100 * time.Millisecond, GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		HeartbeatInterval: options.Heartbeat, SessionTimeout: options.Session, JoinGroupBackoff: 500 * time.Millisecond,
		StartOffset: starts[options.Reset], OffsetOutOfRangeError: true,
	}
	if options.AutoCommit {
		config.CommitInterval = common.AutoCommit
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &reader{reader: kafka.NewReader(config), cancel: cancel, ended: make(chan struct{}), last: map[int]kafka.Message{}}
	go func() {
		defer close(r.ended)
		for {
			message, err := r.reader.FetchMessage(ctx)
			if ctx.Err() != nil {
				return
			}
			r.mutex.Lock()
			begins := len(r.last) == 0
			r.mutex.Unlock()
			if errors.Is(err, kafka.OffsetOutOfRange) && begins {
				common.Absent("a Reader with a group has no policy for an offset out of range and cannot be set to another")
			}
			if err != nil {
				common.Failed(err)
				return
			}
			common.Read(int32(message.Partition), message.Offset, message.Value)
			r.mutex.Lock()
			r.last[message.Partition] = message
			r.mutex.Unlock()
			if options.AutoCommit {
				if err := r.reader.CommitMessages(context.Background(), message); err != nil {
					common.Failed(err)
				}
			}
		}
	}()
	return r, nil
}

func (r *reader) Commit(string) (bool, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	messages := []kafka.Message{}
	for _, message := range r.last {
		messages = append(messages, message)
	}
	return false, r.reader.CommitMessages(context.Background(), messages...)
}

func (r *reader) Seek(partition int32, offset int64) error {
	common.Absent("a Reader with a group cannot be set to another offset")
	return nil
}

func (r *reader) Pause(int32) error {
	return nil
}

func (r *reader) Resume(int32) error {
	return nil
}

func (r *reader) Close() error {
	r.cancel()
	<-r.ended
	return r.reader.Close()
}
