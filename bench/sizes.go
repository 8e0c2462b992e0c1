package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	byFormula = "by the formula"
	keyLength = 20
	idLength  = 26
)

// sizes measures what docs/operate/sizing.md says, and compares it with the formula there.
func sizes() experiment {
	e := experiment{
		name: "sizes",
		what: "What Redis holds (used_memory) for each message with a UUID and the delay metadata, of several sizes and\n" +
			"kinds, and what the formula of docs/operate/sizing.md says. Keys have 20 bytes, names of groups 8.",
		rounds: 1,
	}
	for _, s := range shapes() {
		e.contestants = append(e.contestants, contestant{s.name, s.run})
	}
	return e
}

// shape is a kind of message.
type shape struct {
	name     string
	messages int
	payload  int
	delay    time.Duration
	prepare  func(msg *message.Message, number int) // may be nil
	store    func(ctx context.Context, l *lab, list []*message.Message) error
	takes    func(c cost) float64 // by the formula
}

// shapes are all that the page has, in its order.
func shapes() []shape {
	list := append(scheduledShapes(), dueShapes()...)
	for i := range list {
		list[i].messages = cmp.Or(list[i].messages, backlog)
		list[i].delay = cmp.Or(list[i].delay, 24*time.Hour)
		if list[i].store == nil {
			list[i].store = func(ctx context.Context, l *lab, list []*message.Message) error {
				return publishAll(ctx, l, topic, list)
			}
		}
	}
	return list
}

func scheduledShapes() []shape {
	plain := func(c cost) float64 { return c.body(idLength) + c.sorted(idLength) }
	const keyed, ordered = idLength + len(":") + keyLength, idLength + len("=20,") + keyLength
	withKey := func(c cost) float64 { return c.body(keyed) + c.sorted(keyed) + c.hash(keyLength, keyed) }
	return []shape{
		{name: "empty", payload: 0, takes: plain},
		{name: "100 bytes", payload: 100, takes: plain},
		{name: "1 kB", payload: 1000, takes: plain},
		{name: "10 kB", messages: 20_000, payload: 10_000, takes: plain},
		{name: "with a key", payload: 100, prepare: giveKey, takes: withKey},
		{
			name: "with a key and a window", payload: 100, prepare: giveKey, store: scheduleInWindow,
			takes: func(c cost) float64 { return withKey(c) + c.sorted(keyLength) },
		},
		{
			name: "with an ordering key", payload: 100, prepare: giveOrderingKey,
			takes: func(c cost) float64 { return c.body(ordered) + c.sorted(ordered) },
		},
	}
}

func dueShapes() []shape {
	const soon = time.Millisecond
	waiting := func(groups string) func(c cost) float64 {
		return func(c cost) float64 {
			return c.body(idLength) + float64(strings.Count(groups, ",")+1)*c.sorted(idLength) + c.hash(idLength, len(groups))
		}
	}
	return []shape{
		{name: "due, for 1 of 2 groups", payload: 100, delay: soon, store: dueFor(1), takes: waiting(`["workers1"]`)},
		{name: "due, for 3 of 4 groups", payload: 100, delay: soon, store: dueFor(3), takes: waiting(`["workers1","workers2","workers3"]`)},
		{name: "dead", payload: 100, delay: soon, store: dead, takes: func(c cost) float64 {
			return c.body(idLength) + c.sorted(idLength) + c.hash(idLength, len("not acked in 1 deliveries")) + c.hash(idLength, len("1/1/0"))
		}},
		{
			name: "done, its key in a window", payload: 100, delay: soon, prepare: giveKey, store: doneInWindow,
			takes: func(c cost) float64 { return c.sorted(keyLength) },
		},
	}
}

func giveKey(msg *message.Message, number int) { redisdelay.SetKey(msg, keyFor(number)) }

func giveOrderingKey(msg *message.Message, number int) {
	redisdelay.SetOrderingKey(msg, keyFor(number))
}

func keyFor(number int) string { return fmt.Sprintf("%0*d", keyLength, number) }

func (s shape) run(ctx context.Context, l *lab) (sample, error) {
	n := l.count(s.messages)
	body, err := s.body()
	if err != nil {
		return nil, err
	}
	// Once before it counts, so that Redis has all scripts and buffers by then.
	if err := errors.Join(s.store(ctx, l, s.make(4*callSize)), l.reset(ctx, l.running[0], l.running[1])); err != nil {
		return nil, err
	}
	measured, err := bytesPerMessage(ctx, l, n, func(ctx context.Context, l *lab, n int) error {
		return s.store(ctx, l, s.make(n))
	})
	return sample{{memoryEach, "bytes/msg", measured}, {byFormula, "bytes/msg", s.takes(cost{n, len(body)})}}, err
}

// body is one as it is stored.
func (s shape) body() ([]byte, error) {
	return redisdelay.DefaultMarshaler{}.Marshal(topic, s.make(1)[0])
}

func (s shape) make(n int) []*message.Message {
	list := make([]*message.Message, n)
	for i := range list {
		list[i] = message.NewMessage(watermill.NewUUID(), bytes.Repeat([]byte("x"), s.payload))
		if s.prepare != nil {
			s.prepare(list[i], i)
		}
	}
	return delayed(list, s.delay)
}

// cost is the formula: what Redis 7.0 with jemalloc takes for one of n entries.
type cost struct{ n, bodyLength int }

// body is a message's entry in the hash of bodies.
func (c cost) body(id int) float64 { return c.hash(id, c.bodyLength) }

// hash is a field and its value: two texts and what links them.
func (c cost) hash(key, value int) float64 { return c.entry() + text(key) + text(value) }

// sorted is a member of a sorted set, which is in a hash table and in a skip list.
func (c cost) sorted(member int) float64 {
	const node = 48 + 16.0/3 // 40 bytes, and 16 for each further level, which a third of the nodes have on average
	return c.entry() + node + text(member)
}

// entry is an entry of a hash table and its share of the table.
func (c cost) entry() float64 {
	slots := 1 << bits.Len(uint(c.n-1)) // the next power of two
	return allocated(24) + 8*float64(slots)/float64(c.n)
}

// text is a string of Redis with its header.
func text(length int) float64 {
	switch {
	case length < 32:
		return allocated(length + 2)
	case length < 256:
		return allocated(length + 4)
	default:
		return allocated(length + 6)
	}
}

// allocated is what jemalloc gives: multiples of 16, and from 128 on four sizes until the next power of two.
func allocated(size int) float64 {
	step := 16
	if size > 128 {
		step = max(step, 1<<(bits.Len(uint(size-1))-3))
	}
	return float64((size + step - 1) / step * step)
}

func scheduleInWindow(_ context.Context, l *lab, list []*message.Message) error {
	publisher, err := windowed(l)
	if err != nil {
		return err
	}
	for ; len(list) > 0; list = list[min(callSize, len(list)):] {
		if err := publisher.Publish(topic, list[:min(callSize, len(list))]...); err != nil {
			return err
		}
	}
	return publisher.Close() //nolint:contextcheck // it needs none
}

func windowed(l *lab) (*redisdelay.Publisher, error) {
	return redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: l.common(), DeduplicationWindow: time.Hour}, nil)
}

// doneInWindow leaves only the windows.
func doneInWindow(ctx context.Context, l *lab, list []*message.Message) error {
	if err := register(l, 1); err != nil { //nolint:contextcheck // Close has a timeout of its own
		return err
	}
	if err := scheduleInWindow(ctx, l, list); err != nil {
		return err
	}
	return settleAll(ctx, l, len(list), (*message.Message).Ack)
}

// dueFor makes messages that a first group is done with, and so many others are not.
func dueFor(others int) func(ctx context.Context, l *lab, list []*message.Message) error {
	return func(ctx context.Context, l *lab, list []*message.Message) error {
		if err := register(l, 1+others); err != nil { //nolint:contextcheck // Close has a timeout of its own
			return err
		}
		if err := publishAll(ctx, l, topic, list); err != nil {
			return err
		}
		return settleAll(ctx, l, len(list), (*message.Message).Ack)
	}
}

// dead makes dead letters.
func dead(ctx context.Context, l *lab, list []*message.Message) error {
	if err := publishAll(ctx, l, topic, list); err != nil {
		return err
	}
	return settleAll(ctx, l, len(list), (*message.Message).Nack)
}

// settleAll settles n due messages in the first group, once each.
func settleAll(ctx context.Context, l *lab, n int, settle func(*message.Message) bool) error {
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: l.common(), ConsumerGroup: groupName(0), MaxInFlight: inFlight, MaxDeliveries: 1,
	}, nil)
	if err != nil {
		return err
	}
	var settled atomic.Int64
	var c crowd
	if err := c.join(ctx, subscriber, topic, func(msg *message.Message) {
		settle(msg)
		settled.Add(1)
	}); err != nil {
		return err
	}
	err = l.until(ctx, func() (bool, error) { return settled.Load() == int64(n), nil })
	return errors.Join(err, c.leave())
}
