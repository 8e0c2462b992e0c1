package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/delivery"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/sim/store"
)

// consumer is a process with one subscription and the goroutines that read it.
type consumer struct {
	*process
	w       *World
	plan    ConsumerPlan
	group   *group
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the subscription has ended
	failing bool          // whether its subscription ended with an error; set before ended is closed

	// guarded by World.mu
	links     map[int]*link
	free      int       // readers that wait for a message
	idleSince time.Time // when the first of them began to
	busySince time.Time // when the last of them ceased to
	handling  int       // messages at handlers
	unread    bool      // nobody reads, though fewer than MaxInFlight are at handlers
	noticed   time.Time // when it has found out that somebody reads again
	leaving   time.Time // when it was told to
	stopped   bool
	wentOn    time.Time
	held      int // messages that it has and no handler
	heldBytes int
	commands  int
	counted   time.Time // since when
	worked    int       // messages handed out
}

// deliveryKey is where a message's context has the delivery.
type deliveryKey struct{}

// join starts a consumer.
func (w *World) join(name string, g *group, plan ConsumerPlan) *consumer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &consumer{
		process: newProcess(name, w.over), w: w, plan: plan, group: g, cancel: cancel,
		ended: make(chan struct{}), links: map[int]*link{},
	}
	w.mu.Lock()
	c.idleSince, c.busySince, c.counted = time.Now(), time.Now(), time.Now()
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
	subscription := delivery.New(topicOf{c}, delivery.Config{
		Decode:        decode,
		Redelivery:    c.redelivery,
		Consumer:      c.name,
		MaxInFlight:   c.plan.MaxInFlight,
		Lease:         plan.Lease,
		MaxDeliveries: plan.MaxDeliveries,
		PollInterval:  plan.Poll,
		CloseTimeout:  plan.CloseTimeout,
		Logger:        watermill.NopLogger{},
	})
	for n := range c.plan.Readers {
		c.w.actors.Go(func() { c.read(n, subscription.Messages()) })
	}
	c.failing = subscription.Run(ctx, partitions) != nil
}

func decode(ctx context.Context, m queue.Claimed) (*message.Message, error) {
	msg := message.NewMessage(m.ID, m.Body)
	msg.SetContext(context.WithValue(ctx, deliveryKey{}, store.Delivery{ID: m.ID, Token: store.ParseToken(m.Token)}))
	return msg, nil
}

func (c *consumer) redelivery(ctx context.Context, _ *message.Message) (queue.Nack, error) {
	d, _ := ctx.Value(deliveryKey{}).(store.Delivery)
	delay := min(2*time.Second, 100*time.Millisecond<<min(10, d.Token.Attempt()-1))
	return queue.Nack{Delay: delay.Milliseconds()}, nil
}

// link returns the consumer's way to a partition.
func (c *consumer) link(partition int) *link {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.links[partition] == nil {
		c.links[partition] = c.w.newLink(c.process, partition)
		c.links[partition].consumer = c
	}
	return c.links[partition]
}

// read handles one message after another.
func (c *consumer) read(n int, messages <-chan *message.Message) {
	r := luck(c.w.seed, fmt.Sprintf("%s/reader %d", c.name, n))
	for {
		c.wait(1)
		msg := c.receive(messages)
		if msg == nil {
			c.wait(-1)
			return
		}
		took, early, nack := c.begin(msg, chance(r, c.plan.Nacks), r.Float64())
		if c.rest(context.Background(), took, early) != nil {
			return
		}
		c.done()
		if nack {
			msg.Nack()
		} else {
			msg.Ack()
		}
		if chance(r, c.plan.Pauses) && !c.w.isQuiet() {
			c.w.note(c.name, "stops reading")
			if c.rest(context.Background(), between(r, 0, 10*time.Second), c.w.quieted) != nil {
				return
			}
		}
	}
}

// wait counts the readers that wait.
func (c *consumer) wait(more int) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.free += more
	switch {
	case c.free == 1 && more > 0:
		c.idleSince = time.Now()
		if c.unread && time.Since(c.busySince) > mostHold/4 {
			c.noticed = time.Now().Add(mostBlind)
		}
		c.unread = false
	case c.free == 0:
		c.busySince = time.Now()
	}
}

// done notes that a handler has ended.
func (c *consumer) done() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.handling--
	c.unread = c.free == 0
}

// receive waits for a message; nil when there will be none.
func (c *consumer) receive(messages <-chan *message.Message) *message.Message {
	for {
		halt, resume := c.signals()
		select {
		case <-resume:
		case <-c.dead:
			return nil
		case <-c.over:
			return nil
		}
		select {
		case msg := <-messages:
			return msg
		case <-halt:
		case <-c.dead:
			return nil
		case <-c.over:
			return nil
		}
	}
}

// begin notes that a handler has a message, and says how long it takes and how it ends.
func (c *consumer) begin(msg *message.Message, fails bool, draw float64) (took time.Duration, early <-chan struct{}, nack bool) {
	c.wait(-1)
	d, _ := msg.Context().Value(deliveryKey{}).(store.Delivery)
	m := c.w.handedOut(msg.Context(), c, d)
	if m == nil {
		return 0, nil, false
	}
	c.w.mu.Lock()
	c.handling++
	c.unread = c.free == 0 && c.handling < c.plan.MaxInFlight
	c.w.mu.Unlock()
	if m.killer && !c.w.isQuiet() {
		c.die("is killed by its message")
		return 0, nil, false
	}
	switch least, most, left := c.mood(); {
	case c.w.isQuiet():
		took = 0
	case m.slow > 0:
		took = m.slow
	case left > 0:
		took = left
	default:
		took = least + time.Duration(draw*float64(most-least))
	}
	return took, c.w.quieted, fails && !c.w.isQuiet()
}

// mood is how long handlers take now; left is until when those last that are blocked.
func (c *consumer) mood() (least, most, left time.Duration) {
	var cycle time.Duration
	for _, m := range c.plan.Moods {
		cycle += m.For
	}
	if cycle == 0 {
		return 0, 0, 0
	}
	at := time.Since(c.w.start) % cycle
	for _, m := range c.plan.Moods {
		if at < m.For {
			if m.Blocked {
				left = m.For - at
			}
			return m.Least, m.Most, left
		}
		at -= m.For
	}
	return 0, 0, 0
}

// die kills the consumer: nothing more of it reaches anybody.
func (c *consumer) die(why string) {
	c.w.note(c.name, why)
	c.kill()
	c.cancel()
}

// leave tells the consumer to end.
func (c *consumer) leave() {
	c.w.mu.Lock()
	if c.leaving.IsZero() {
		c.leaving = time.Now()
		c.w.log(c.name, "leaves", nil)
	}
	c.w.mu.Unlock()
	c.cancel()
}
