package delivery

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// losses counts reports of lost leases.
type losses struct {
	mu  sync.Mutex
	ids []string // guarded by mu
}

func (l *losses) observe(c *Config) {
	c.Observer.LeaseLost = func(e observe.LeaseLost) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ids = append(l.ids, e.ID)
	}
}

func (l *losses) all() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids
}

// settlements are the ways to end a delivery, each with its call to Redis.
var settlements = map[string]struct {
	call   string
	settle func(g *fakeGroup, r *running)
}{
	"ack":     {"ack", func(_ *fakeGroup, r *running) { (<-r.Messages()).Ack() }},
	"nack":    {"nack", func(_ *fakeGroup, r *running) { (<-r.Messages()).Nack() }},
	"release": {"release", func(g *fakeGroup, _ *running) { pass(time.Second); g.paused <- struct{}{} }},
}

// forgetsBefore makes a group forget the delivery of its only message when a call runs, whose answer
// takes longer than the time to the next heartbeat. If the delivery was current until then, the
// answer says so.
func (g *fakeGroup) forgetsBefore(call string, current bool) {
	var once sync.Once
	g.setHook(func(name string) error {
		if name == call {
			once.Do(func() {
				g.view(func() { g.stale["0000"] = true })
				pass(testLease / 2)
				g.view(func() { g.stale["0000"] = !current })
			})
		}
		return nil
	})
}

// TestAnUnansweredSettlementIsNotReportedAsALostLease: Redis has ended the delivery, and a heartbeat finds it missing before
// the consumer knows.
func TestAnUnansweredSettlementIsNotReportedAsALostLease(t *testing.T) {
	for name, s := range settlements {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g, lost := newFakeGroup(1), &losses{}
				g.forgetsBefore(s.call, true)
				r := run(t, g, lost.observe)
				s.settle(g, r)
				pass(testLease)
				g.view(func() { require.NotEmpty(t, g.extended, "a heartbeat") })
				r.end(t)
				assert.Empty(t, lost.all())
			})
		})
	}
}

// TestALeaseLostBeforeItsSettlementIsReported once the reply shows that the settlement was too late.
func TestALeaseLostBeforeItsSettlementIsReported(t *testing.T) {
	for _, name := range []string{"ack", "nack"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g, lost := newFakeGroup(1), &losses{}
				g.forgetsBefore(settlements[name].call, false)
				r := run(t, g, lost.observe)
				settlements[name].settle(g, r)
				pass(testLease)
				r.end(t)
				assert.Equal(t, []string{"0000"}, lost.all())
			})
		})
	}
}

// TestAnUnansweredBatchAckIsNotReportedAsALostLease while the handler works on the rest of the batch.
func TestAnUnansweredBatchAckIsNotReportedAsALostLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, lost := newFakeGroup(2), &losses{}
		g.forgetsBefore("ack", true)
		r := run(t, g, lost.observe, func(c *Config) {
			c.BatchSize = 2
			c.Handle = func(batch []*message.Message) {
				for _, msg := range batch {
					msg.Ack()
					pass(testLease)
				}
			}
		})
		pass(3 * testLease)
		r.end(t)
		assert.Empty(t, lost.all())
		assert.Equal(t, []string{"0000", "0001"}, g.acked)
	})
}

// TestAMessageEndedByItsHandlerIsNotReportedAsLost while the reply is awaited.
func TestAMessageEndedByItsHandlerIsNotReportedAsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, lost := newFakeGroup(1), &losses{}
		r := run(t, g, lost.observe, func(c *Config) {
			c.BatchSize = 1
			c.Handle = func(batch []*message.Message) {
				held, _ := BatchMessageOf(batch[0].Context())
				held.BeginSettle()
				g.view(func() { g.stale["0000"] = true })
				pass(testLease)
				held.Settled(false)
				batch[0].Ack()
			}
		})
		pass(2 * testLease)
		r.end(t)
		assert.Empty(t, lost.all())
	})
}

func TestAReclaimBeforeTheNackReplyIsNotALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLeases()
		var lost losses
		config := Config{}
		lost.observe(&config)
		l.report.observer = &config.Observer
		first := l.hold(claimed("a", "1"), time.Now())
		l.settling(first)
		second := l.hold(claimed("a", "2/0/1"), time.Now())
		assert.Empty(t, lost.all())
		l.settled(first, nil)
		assert.Equal(t, []queue.Held{{Delivery: second[0].delivery()}}, l.all())
	})
}
