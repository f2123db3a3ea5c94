package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"penstock/clients/common"
)

// member is a consumer group's handler: sarama calls it for each session and each claimed partition.
type member struct {
	options common.MemberOptions
	group   sarama.ConsumerGroup
	cancel  context.CancelFunc
	ended   chan struct{}

	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
	read    map[int32]int64
	again   chan struct{} // closed to end the session
}

func startMember(options common.MemberOptions) (common.Member, error) {
	if options.Reset == "none" {
		common.Absent("sarama's Offsets.Initial is newest or oldest")
	}
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Offsets.Initial = map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}[options.Reset]
	config.Consumer.Offsets.AutoCommit.Enable = options.AutoCommit
	config.Consumer.Offsets.AutoCommit.Interval = common.AutoCommit
	config.Consumer.Group.Session.Timeout = options.Session
	config.Consumer.Group.Heartbeat.Interval = options.Heartbeat
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	config.Consumer.Group.InstanceId = options.Instance
	if options.Cooperative {
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	group, err := sarama.NewConsumerGroup([]string{options.Bootstrap}, options.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{options: options, group: group, cancel: cancel, ended: make(chan struct{}), read: map[int32]int64{}, again: make(chan struct{})}
	go func() {
		for err := range group.Errors() {
			// An offset out of range is told here too, though sarama then starts from its initial offset.
			if !errors.Is(err, sarama.ErrOffsetOutOfRange) {
				common.Failed(err)
			}
		}
	}()
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{options.Topic}, m); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) && ctx.Err() == nil {
				common.Failed(err)
			}
		}
	}()
	return m, nil
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	m.session = session
	m.mutex.Unlock()
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	return nil
}

// ConsumeClaim has a partition from its beginning to its end; with a cooperative strategy that outlives generations.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	common.Assigned([]int32{claim.Partition()}, session.GenerationID())
	m.mutex.Lock()
	again := m.again
	m.mutex.Unlock()
	for open := true; open; {
		var message *sarama.ConsumerMessage
		select {
		case message, open = <-claim.Messages():
		case <-again:
			open = false
		}
		if message != nil && open {
			m.tell(session, message)
		}
	}
	m.mutex.Lock()
	delete(m.read, claim.Partition())
	m.mutex.Unlock()
	common.Revoked([]int32{claim.Partition()})
	return nil
}

func (m *member) tell(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) {
	common.Read(message.Partition, message.Offset, message.Value)
	m.mutex.Lock()
	m.read[message.Partition] = message.Offset + 1
	m.mutex.Unlock()
	if m.options.AutoCommit {
		session.MarkMessage(message, "")
	}
}

func (m *member) Commit(note string) (bool, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.session == nil {
		return true, errors.New("no session")
	}
	for partition, offset := range m.read {
		m.session.MarkOffset(m.options.Topic, partition, offset, note)
	}
	m.session.Commit()
	return true, nil
}

// Seek commits where to go on, and ends the session: the next one starts there.
func (m *member) Seek(partition int32, offset int64) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.session == nil {
		return errors.New("no session")
	}
	for p, next := range m.read {
		m.session.MarkOffset(m.options.Topic, p, next, "")
	}
	m.session.ResetOffset(m.options.Topic, partition, offset, "")
	m.session.Commit()
	close(m.again)
	m.again = make(chan struct{})
	return nil
}

func (m *member) Pause(partition int32) error {
	m.group.Pause(map[string][]int32{m.options.Topic: {partition}})
	return nil
}

func (m *member) Resume(partition int32) error {
	m.group.Resume(map[string][]int32{m.options.Topic: {partition}})
	return nil
}

func (m *member) Close() error {
	m.cancel()
	err := m.group.Close()
	<-m.ended
	return err
}
