package sim

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/delivery"
	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// consumer is a process with one subscription and the goroutines that read its channel.
type consumer struct {
	*process
	w       *World
	hub     *notify.Hub
	plan    ConsumerPlan
	group   *group
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the subscription has ended
	failing bool          // its subscription ended with an error; set before ended is closed

	// guarded by World.mu
	links      map[int]*link
	known      int                // partitions that know its group
	pauses     map[int]*pauseSeen // by partition
	free       int                // readers that wait for a message
	idleSince  time.Time          // when the first of them began to wait
	busySince  time.Time          // when the last of them stopped waiting
	handling   int                // messages at handlers
	unread     bool               // no reader reads, though handlers have fewer than MaxInFlight
	noticed    time.Time          // when it notices that its channel is read again
	stoppingAt time.Time          // when it was closed
	stopped    bool
	wentOn     time.Time
	held       int // messages that no handler has yet
	heldBytes  int
	joined     time.Time
	commands   int
	woken      int       // notifications received that a message is due
	counted    time.Time // when counting of commands began
	worked     int       // messages handed out
	lastWork   time.Time // when the last of them was handed out
}

// deliveryKey is the context key of a message's delivery.
type deliveryKey struct{}

// join starts a consumer.
func (w *World) join(name string, g *group, plan ConsumerPlan) *consumer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &consumer{
		process: newProcess(name, w.over), w: w, plan: plan, group: g, cancel: cancel,
		ended: make(chan struct{}), links: map[int]*link{}, pauses: map[int]*pauseSeen{},
	}
	c.hub = notify.New(nodesOf{c}, notify.Interval, notify.Timeout)
	w.mu.Lock()
	c.joined = time.Now()
	c.idleSince, c.busySince, c.counted = c.joined, c.joined, c.joined
	w.consumers = append(w.consumers, c)
	g.consumers = append(g.consumers, c)
	w.log(name, "joins %s with %d in flight and %d readers", []any{g.name, plan.MaxInFlight, plan.Readers})
	w.mu.Unlock()
	w.actors.Go(func() { c.run(ctx) })
	return c
}

func (c *consumer) run(ctx context.Context) {
	defer close(c.ended)
	defer c.cancel()
	partitions, err := 0, error(nil)
	for partitions == 0 {
		if partitions, err = (topicOf{c}).Partitions(ctx); err != nil && c.rest(ctx, time.Second, nil) != nil {
			return
		}
	}
	plan := c.w.plan
	ledger := &ledger{w: c.w, name: c.name, open: map[string]int{}}
	subscription := delivery.New(topicOf{c}, delivery.Config{
		Decode:        decode,
		Redelivery:    c.redelivery,
		Consumer:      c.name,
		MaxInFlight:   c.plan.MaxInFlight,
		Lease:         plan.Lease,
		MaxDeliveries: plan.MaxDeliveries,
		MaxBytes:      16 << 20,
		PollInterval:  plan.Poll,
		PingInterval:  notify.Interval,
		CloseTimeout:  plan.CloseTimeout,
		Observer:      ledger.observer(),
	})
	for n := range c.plan.Readers {
		c.w.actors.Go(func() { c.read(context.WithoutCancel(ctx), n, subscription.Messages()) })
	}
	ended := make(chan error, 1)
	subscription.Start(ctx, partitions, func(err error) { ended <- err })
	if c.failing = <-ended != nil; !c.failing {
		ledger.close()
	}
}

func decode(ctx context.Context, m queue.Claimed) (*message.Message, time.Time, error) {
	msg := message.NewMessage(m.ID, m.Body)
	msg.SetContext(context.WithValue(ctx, deliveryKey{}, store.Delivery{ID: m.ID, Receipt: store.ParseReceipt(m.Receipt)}))
	return msg, time.Time{}, nil
}

func (c *consumer) redelivery(ctx context.Context, _ *message.Message) (queue.Nack, error) {
	d, _ := ctx.Value(deliveryKey{}).(store.Delivery)
	delay := min(2*time.Second, 100*time.Millisecond<<min(10, d.Receipt.Attempt()-1))
	return queue.Nack{Delay: delay}, nil
}

// link returns the consumer's connection to a partition.
func (c *consumer) link(partition int) *link {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.links[partition] == nil {
		c.links[partition] = c.w.newLink(c.process, partition)
		c.links[partition].consumer = c
	}
	return c.links[partition]
}

// die kills the consumer: none of its calls arrive any more.
func (c *consumer) die(why string) {
	c.w.note(c.name, why)
	c.kill()
	c.cancel()
}

// stop tells the consumer to end.
func (c *consumer) stop() {
	c.w.mu.Lock()
	if c.stoppingAt.IsZero() {
		c.stoppingAt = time.Now()
		c.w.log(c.name, "leaves", nil)
	}
	c.w.mu.Unlock()
	c.cancel()
}
