package languages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/inbox"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/chaos"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// workerEnv makes the test binary a worker process; it holds a job as JSON.
const workerEnv = "REDISDELAY_LANGUAGES_WORKER"

// readers is the consumer group.
const readers = "g"

// burst is after how many messages a publisher pauses, as in testdata/add.py.
const burst = 200

// task is what a worker does.
type task string

const (
	stores    task = "store what is in the inbox"
	consumes  task = "consume the topic"
	relays    task = "relay the topic to a stream"
	publishes task = "publish to the topic"
)

// job is a task of a process in Go.
type job struct {
	Does  task
	Addr  string
	Topic string

	// A publisher publishes the numbers from First to Count, without that one.
	First, Count int
	Last         chaos.Event // what a publisher told last
	Pause        time.Duration
}

var errEnded = errors.New("it has ended by itself")

// work does a job. Only a publisher ends by itself.
func work(encoded string) {
	var j job
	err := json.Unmarshal([]byte(encoded), &j)
	if err == nil {
		err = j.run(context.Background(), redis.NewClient(&redis.Options{Addr: j.Addr}))
	}
	if err == nil && j.Does != publishes {
		err = errEnded
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", j.Does, err)
		os.Exit(1)
	}
}

func (j job) run(ctx context.Context, client redis.UniversalClient) error {
	switch j.Does {
	case stores:
		i, err := inbox.New(inbox.Config{Client: client, TakeOverAfter: 200 * time.Millisecond}, nil)
		if err != nil {
			return err
		}
		return i.Run(ctx)
	case consumes:
		return j.consume(ctx, client, printer())
	case relays:
		r, err := relay.New(relay.Config{
			Client: client, Streams: &redisstream.PublisherConfig{Client: client}, Topics: []string{j.Topic},
			LeaseDuration: time.Second,
		}, nil)
		if err != nil {
			return err
		}
		return r.Run(ctx)
	default:
		return j.publish(client, printer())
	}
}

// printer returns a function that prints an event at once, as a line, so that a kill loses none.
func printer() func(chaos.Event) {
	var mu sync.Mutex
	output := json.NewEncoder(os.Stdout)
	return func(e chaos.Event) {
		e.At = time.Now().UnixMicro()
		mu.Lock()
		defer mu.Unlock()
		_ = output.Encode(e) // without its reader, this process ends soon
	}
}

const lease = time.Second

func (j job) consume(ctx context.Context, client redis.UniversalClient, report func(chaos.Event)) error {
	s, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, ConsumerGroup: readers, LeaseDuration: lease, MaxInFlight: 64, Observer: ofAcks(report),
	}, nil)
	if err != nil {
		return err
	}
	messages, err := s.Subscribe(ctx, j.Topic)
	for err != nil { // Redis may be away
		<-time.After(50 * time.Millisecond)
		messages, err = s.Subscribe(ctx, j.Topic)
	}
	for msg := range messages {
		d, _ := redisdelay.DeliveryFromContext(msg.Context())
		e := chaos.Event{
			Kind: chaos.Delivered, UUID: msg.UUID, ID: d.ID, Group: d.Group,
			Claimed: d.LeasedUntil.Add(-lease - time.Millisecond).UnixMicro(), // LeasedUntil is rounded up
		}
		if string(msg.Payload) != payloadOf(msg.UUID) {
			e.UUID = "garbled " + msg.UUID
		}
		report(e)
		e.Kind = chaos.Handled
		report(e)
		msg.Ack()
	}
	return s.Close()
}

// ofAcks reports the acks that Redis has accepted.
func ofAcks(report func(chaos.Event)) observe.Observer {
	return observe.Observer{Settled: func(s observe.Settled) {
		if s.How == observe.Acked && !s.Stale {
			report(chaos.Event{Kind: chaos.Acked, ID: s.ID, Group: s.Group})
		}
	}}
}

func payloadOf(uuid string) string { return "payload of " + uuid }

// publish goes on after what was told last. If that is in doubt, it is published again: its key makes sure that it is stored once,
// and is in use for longer than the test.
func (j job) publish(client redis.UniversalClient, report func(chaos.Event)) error {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client: client, OnDuplicate: redisdelay.IgnoreDuplicate, DeduplicationWindow: time.Hour,
	}, nil)
	if err != nil {
		return err
	}
	for n := j.First; n < j.Count; n++ {
		e := chaos.Event{Kind: chaos.Published, Outcome: chaos.Unknown, UUID: strconv.Itoa(n)}
		due := time.Now().Add(time.Duration(n*7919%2000) * time.Millisecond)
		if e.UUID == j.Last.UUID {
			due = time.UnixMicro(j.Last.Due)
		}
		e.Due = due.UnixMicro()
		report(e)
		msg := fixture.Keyed(e.UUID, e.UUID, max(time.Until(due), time.Millisecond))
		msg.Payload = []byte(payloadOf(e.UUID))
		if err := publisher.Publish(j.Topic, msg); err != nil {
			return err
		}
		e.Outcome = chaos.OK
		report(e)
		if n%burst == burst-1 {
			<-time.After(j.Pause)
		}
	}
	return publisher.Close()
}
