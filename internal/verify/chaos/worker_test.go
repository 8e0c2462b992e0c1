package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// workerEnv makes the test binary a worker process; its value is a job as JSON.
const workerEnv = "REDISDELAY_CHAOS_WORKER"

// job is the job of a worker, in its own process or in this one.
type job struct {
	Addr    string
	Cluster []string // addresses of a cluster, instead of Addr
	Topic   string

	// A publisher publishes Count messages, Batch in each call, due after Delay. Count 0
	// means no end.
	Publish bool
	Name    string // prefix of a publisher's UUIDs
	Count   int
	Batch   int
	Every   time.Duration // between calls
	Delay   time.Duration
	Spread  time.Duration // up to this much more delay
	Keys    int           // how many ordering keys messages have, in turn; 0: none
	Timeout time.Duration
	Async   bool // it does not wait for the result of a call before the next one

	CancelOneOf int // one in this many messages has a key, and is cancelled about when it is due; 0: none

	Partitions   int
	WaitReplicas int

	// A consumer handles messages until it is stopped.
	Consumers   int // subscribers, each with its own client; 0: one, with the given client
	Group       string
	Lease       time.Duration
	MaxInFlight int
	Handling    time.Duration // of one message
	Poison      string        // messages whose UUIDs start with this fail
	FailFirst   int           // number of deliveries in which they fail
	FailOneOf   int           // one in this many deliveries fails; 0: none

	ToStream   string // how the worker relays the topic to a stream of the same name; "": not at all
	FromStream bool   // a consumer reads that stream

	Schedules int // if above 0, a worker applies and runs this many, and consumes their ticks

	FromInbox bool // a worker stores the messages of the inbox, and consumes them

	Chain chain // if it has topics, a consumer publishes each handled message to the next topic

	logger watermill.LoggerAdapter // of a worker in this process
}

// work runs the job of a worker process. It writes each event at once, as a line of
// output, so that a kill loses none.
func work(encoded string) {
	var j job
	var mu sync.Mutex
	output := json.NewEncoder(os.Stdout)
	err := json.Unmarshal([]byte(encoded), &j)
	if err == nil {
		client := j.dial()
		err = j.run(context.Background(), client, func(e Event) {
			e.At = time.Now().UnixMicro()
			mu.Lock()
			defer mu.Unlock()
			_ = output.Encode(e) // without its reader, this process ends soon
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func (j job) dial() redis.UniversalClient {
	if j.Cluster != nil {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: j.Cluster})
	}
	return redis.NewClient(&redis.Options{Addr: j.Addr})
}

func (j job) run(ctx context.Context, client redis.UniversalClient, report func(Event)) error {
	switch {
	case j.Schedules > 0:
		return j.periodically(ctx, client, report)
	case j.FromInbox:
		return j.fromInbox(ctx, client, report)
	case j.Publish:
		return j.publish(ctx, client, report)
	case j.ToStream != "":
		return j.toStream(ctx, client)
	case j.FromStream:
		return j.readStream(ctx, client, report)
	case len(j.Chain.Topics) > 0:
		return j.relay(ctx, client, report)
	case j.Consumers == 0:
		return j.consume(ctx, client, report)
	}
	var consumers sync.WaitGroup
	for range j.Consumers {
		consumers.Go(func() {
			if err := j.consume(ctx, redis.NewClient(&redis.Options{Addr: j.Addr}), report); err != nil {
				fmt.Fprintln(os.Stderr, "worker:", err)
			}
		})
	}
	consumers.Go(func() { reportUsage(ctx, report) })
	consumers.Wait()
	return nil
}

// reportUsage reports the resources of this process twice a second.
func reportUsage(ctx context.Context, report func(Event)) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		report(Event{Kind: Used, Heap: int64(stats.HeapAlloc), Goroutines: runtime.NumGoroutine()})
	}
}

// publish reports each call before it is made, with an unknown result, because the process may die,
// and again when it has ended.
func (j job) publish(ctx context.Context, client redis.UniversalClient, report func(Event)) error {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client: client, PublishTimeout: j.Timeout, Partitions: j.Partitions, WaitReplicas: j.WaitReplicas,
	}, j.logger)
	if err != nil {
		return err
	}
	for n := 0; (j.Count == 0 || n < j.Count) && ctx.Err() == nil; n += max(j.Batch, 1) {
		j.publishOnce(publisher, n, report)
		<-time.After(j.Every)
		j.cancel(ctx, publisher, n, report)
	}
	return publisher.Close()
}

// cancelAfter is how many calls later a message is cancelled: while messages with a Spread become due.
const cancelAfter = 15

// cancel cancels messages that were published some calls before the call that began with n.
func (j job) cancel(ctx context.Context, publisher *redisdelay.Publisher, n int, report func(Event)) {
	for i := n - cancelAfter*j.Batch; j.CancelOneOf > 0 && i >= 0 && i < n-(cancelAfter-1)*j.Batch; i++ {
		if i%j.CancelOneOf != 0 {
			continue
		}
		uuid := fmt.Sprintf("%s-%d", j.Name, i)
		report(Event{Kind: Cancelled, UUID: uuid, Outcome: Unknown})
		_, err := publisher.Cancel(ctx, j.Topic, uuid)
		switch {
		case err == nil:
			report(Event{Kind: Cancelled, UUID: uuid, Outcome: OK})
		case errors.Is(err, redisdelay.ErrMessageNotFound):
			report(Event{Kind: Cancelled, UUID: uuid, Outcome: Failed})
		}
	}
}

func (j job) publishOnce(publisher *redisdelay.Publisher, n int, report func(Event)) {
	start := time.Now()
	var call []*message.Message
	var dues, waits []int64
	for i := range max(j.Batch, 1) {
		msg := message.NewMessage(fmt.Sprintf("%s-%d", j.Name, n+i), []byte("payload"))
		wait := j.Delay
		if j.Spread > 0 {
			wait += rand.N(j.Spread)
		}
		if wait > 0 {
			delay.Message(msg, delay.For(wait))
		}
		if j.Keys > 0 {
			redisdelay.SetOrderingKey(msg, fmt.Sprint("k", rand.IntN(j.Keys)))
		}
		if j.CancelOneOf > 0 && (n+i)%j.CancelOneOf == 0 {
			redisdelay.SetKey(msg, msg.UUID)
		}
		call, dues, waits = append(call, msg), append(dues, start.Add(wait).UnixMicro()), append(waits, wait.Microseconds())
		report(Event{Kind: Published, UUID: msg.UUID, Outcome: Unknown, Due: dues[i]})
	}
	check := func(err error) {
		for i, msg := range call {
			report(Event{Kind: Published, UUID: msg.UUID, Outcome: outcomeOf(err), Due: dues[i], Wait: waits[i]})
		}
	}
	if j.Async {
		publisher.PublishAsync(j.Topic, call...).OnDone(check)
		return
	}
	check(publisher.Publish(j.Topic, call...))
}

// outcomeOf returns what an error of Publish proves about the messages of the call.
func outcomeOf(err error) Outcome {
	var shortfall *redisdelay.ReplicationError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &shortfall), errors.Is(err, redisdelay.ErrOutcomeUnknown):
		return Unknown // after a ReplicationError: stored, but perhaps not replicated
	}
	return Failed
}

func (j job) consume(ctx context.Context, client redis.UniversalClient, report func(Event)) error {
	client.AddHook(ackHook{report: report})
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: j.Group,
		LeaseDuration: j.Lease,
		MaxInFlight:   j.MaxInFlight,
	}, j.logger)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, j.Topic)
	for err != nil && ctx.Err() == nil { // Redis may be down
		messages, err = subscriber.Subscribe(ctx, j.Topic)
	}
	if err != nil {
		return subscriber.Close()
	}
	var handlers sync.WaitGroup
	for msg := range messages {
		j.delivered(msg, report) // here, so that a process that dies has at most one unreported message
		handlers.Go(func() { j.handle(msg, report) })
	}
	handlers.Wait()
	return subscriber.Close()
}

// delivered reports that the worker has received a message.
func (j job) delivered(msg *message.Message, report func(Event)) {
	d, _ := redisdelay.DeliveryFromContext(msg.Context())
	lease := j.Lease
	if lease == 0 {
		lease = 30 * time.Second
	}
	report(Event{
		Kind: Delivered, UUID: msg.UUID, ID: d.ID, Group: d.Group, Worker: j.Name, Attempt: d.Attempt, Token: d.Token,
		Claimed: d.LeasedUntil.Add(-lease - time.Millisecond).UnixMicro(), // LeasedUntil is rounded up
	})
}

func (j job) handle(msg *message.Message, report func(Event)) {
	d, _ := redisdelay.DeliveryFromContext(msg.Context())
	if j.Handling > 0 {
		<-time.After(j.Handling)
	}
	poisoned := j.Poison != "" && strings.HasPrefix(msg.UUID, j.Poison)
	if j.FailOneOf > 0 && rand.IntN(j.FailOneOf) == 0 || poisoned && d.Attempt <= j.FailFirst {
		report(Event{Kind: Refused, UUID: msg.UUID, ID: d.ID, Group: j.Group, Worker: j.Name, Token: d.Token})
		msg.Nack()
		return
	}
	report(Event{Kind: Handled, UUID: msg.UUID, ID: d.ID, Group: j.Group, Worker: j.Name, Token: d.Token})
	msg.Ack()
}

// ackHook reports the acks that Redis has accepted, from the replies of ack.lua: the script with
// ten keys, the first of which is an unack set and the sixth the keys hash.
type ackHook struct {
	redistest.Hook
	report func(Event)
}

func (h ackHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		args := cmd.Args()
		call, ok := cmd.(*redis.Cmd)
		if err != nil || !ok || len(args) < 17 || args[2] != 10 {
			return err
		}
		first, _ := args[3].(string)
		last, _ := args[8].(string)
		_, group, isUnack := strings.Cut(first, "}:unack:")
		if !isUnack || !strings.HasSuffix(last, "}:keys") {
			return err
		}
		gone := map[any]bool{}
		lists, _ := call.Slice() // stale acks, and acks to send again
		for _, list := range lists {
			ids, _ := list.([]any)
			for _, id := range ids {
				gone[id] = true
			}
		}
		for i := 15; i < len(args); i += 2 { // a token follows each id
			if id := args[i]; !gone[id] {
				h.report(Event{Kind: Acked, ID: id.(string), Group: group})
			}
		}
		return nil
	}
}
