package sim

import (
	"context"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/delivery"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// topicOf is the topic of a consumer.
type topicOf struct{ c *consumer }

var _ delivery.Topic = topicOf{}

// Partitions implements delivery.Topic.
func (t topicOf) Partitions(ctx context.Context) (int, error) {
	answer, err := call(ctx, t.c.link(0), "partitions", func(int64) joined { return t.c.w.register(t.c) })
	if err == nil && answer.retired {
		err = queue.ErrGroupRetired
	}
	return answer.partitions, err
}

// EndExpired implements delivery.Topic. No group of the simulation expires.
func (t topicOf) EndExpired(context.Context) ([]queue.Ended, error) { return nil, nil }

// Group implements delivery.Topic.
func (t topicOf) Group(partition int) delivery.Group {
	return groupOf{t.c, t.c.link(partition)}
}

// Listen implements delivery.Topic.
func (t topicOf) Listen(partition int, _ string, handler queue.HintHandler) delivery.Listener {
	return t.c.hub.Listen(strconv.Itoa(partition), notificationReader{t.c.link(partition), handler})
}

// groupOf is the group of a consumer in one partition.
type groupOf struct {
	c *consumer
	l *link
}

// Claim implements delivery.Group.
func (g groupOf) Claim(ctx context.Context, r queue.ClaimRequest) (queue.ClaimReply, error) {
	request := store.Request{
		Group: g.c.group.name, Consumer: r.Consumer, Number: r.Number,
		Limit: r.Limit, Free: r.Free, Bytes: r.Bytes,
		Lease: r.Lease.Milliseconds(), MaxDeliveries: r.MaxDeliveries,
	}
	start := time.Now()
	claims, err := call(ctx, g.l, "claim", func(now int64) claimed { return g.c.claim(g.l, now, request) })
	if err != nil {
		return queue.ClaimReply{}, err
	}
	if g.c.received(g.l, claims, start); claims.retired {
		return queue.ClaimReply{}, queue.ErrGroupRetired
	}
	result := queue.ClaimReply{
		Next: time.Duration(claims.Wait) * time.Microsecond, NeedsWorker: claims.NeedsWorker, Buried: buriedOf(claims.Buried),
	}
	for _, m := range claims.Messages {
		result.Messages = append(result.Messages, queue.Claimed{
			ID: m.ID, Receipt: m.Receipt.String(), Token: int64(m.Receipt.Token), Attempt: m.Receipt.Attempt(), Metadata: m.Metadata,
			DueAt: time.UnixMilli(m.Due), AnsweredAt: time.UnixMilli(claims.Now), LeasedUntil: time.UnixMilli(claims.Deadline), Body: m.Body,
		})
	}
	return result, nil
}

// Ack implements delivery.Group.
func (g groupOf) Ack(ctx context.Context, done []queue.Done) (queue.Acked, error) {
	list := make([]store.Delivery, len(done))
	for i, d := range done {
		list[i] = deliveryOf(d.Delivery)
	}
	return call(ctx, g.l, "ack", func(int64) queue.Acked { return g.c.ack(g.l, list) })
}

// Nack implements delivery.Group.
func (g groupOf) Nack(ctx context.Context, maxDeliveries int, nacks []queue.Nack) ([]string, []queue.Buried, error) {
	list := make([]store.Nack, len(nacks))
	for i, n := range nacks {
		list[i] = store.Nack{Delivery: deliveryOf(n.Delivery), Delay: milliseconds(n.Delay), Metadata: n.Metadata}
	}
	answer, err := call(ctx, g.l, "nack", func(now int64) nacked { return g.c.nack(g.l, now, maxDeliveries, list) })
	return answer.stale, buriedOf(answer.buried), err
}

func buriedOf(list []store.Buried) []queue.Buried {
	result := make([]queue.Buried, len(list))
	for i, b := range list {
		result[i] = queue.Buried(b)
	}
	return result
}

// Extend implements delivery.Group.
func (g groupOf) Extend(ctx context.Context, h queue.Heartbeat, held []queue.Held) ([]string, error) {
	list := make([]store.Held, len(held))
	for i, d := range held {
		list[i] = store.Held{Delivery: deliveryOf(d.Delivery), HandedOut: d.HandedOut}
	}
	return call(ctx, g.l, "extend", func(now int64) []string {
		return g.c.extend(g.l, now, h.Lease.Milliseconds(), list)
	})
}

// Release implements delivery.Group.
func (g groupOf) Release(ctx context.Context, releases []queue.Release) ([]string, error) {
	list := make([]store.Release, len(releases))
	for i, r := range releases {
		list[i] = store.Release{Delivery: deliveryOf(r.Delivery), Due: r.DueAt.UnixMilli(), Age: milliseconds(r.Age)}
	}
	return call(ctx, g.l, "release", func(now int64) []string { return g.c.release(g.l, now, list) })
}

// Leave implements delivery.Group.
func (g groupOf) Leave(ctx context.Context, _ string) error {
	_, err := call(ctx, g.l, "leave", func(int64) bool { return true })
	return err
}

// Bury implements delivery.Group.
func (g groupOf) Bury(ctx context.Context, burials []queue.Burial) ([]string, error) {
	list := make([]store.Burial, len(burials))
	for i, b := range burials {
		list[i] = store.Burial{Delivery: deliveryOf(b.Delivery), Reason: b.Reason}
	}
	return call(ctx, g.l, "bury", func(now int64) []string { return g.c.bury(g.l, now, list) })
}

func deliveryOf(d queue.Delivery) store.Delivery {
	return store.Delivery{ID: d.ID, Receipt: store.ParseReceipt(d.Receipt)}
}

// milliseconds returns a duration in ms, as the store uses it, rounded up.
func milliseconds(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }
