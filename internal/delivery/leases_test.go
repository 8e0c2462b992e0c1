package delivery

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func newTestLeases() *leases {
	config := &Config{Lease: testLease}
	report := newReporter(config, nil, 0)
	return newLeases(config, nil, nil, &report, newAlarm())
}

func claimed(id, receipt string) []queue.Claimed {
	return []queue.Claimed{{ID: id, Receipt: receipt, AnsweredAt: time.Now(), LeasedUntil: time.Now().Add(testLease)}}
}

func TestAMessageWithAnExpiredLeaseIsNotHandedOut(t *testing.T) {
	l := newTestLeases()
	it := l.hold(claimed("a", "1"), time.Now().Add(-testLease))[0] // as after a stopped process
	ctx, cancel := context.WithCancelCause(t.Context())
	assert.False(t, l.handOut(it, cancel))
	assert.NoError(t, ctx.Err())
	cancel(nil)
	assert.Zero(t, l.count())
}

func TestSettlingADeliveryKeepsALaterDeliveryOfTheMessage(t *testing.T) {
	l := newTestLeases()
	first := l.hold(claimed("a", "1"), time.Now())[0]
	second := l.hold(claimed("a", "1/1"), time.Now())[0] // given back, and claimed again
	l.settled([]*item{first}, nil)
	require.Equal(t, []queue.Held{{Delivery: second.delivery()}}, l.all())

	l.extended([]queue.Held{{Delivery: first.delivery()}}, []string{"a"}, time.Now())
	assert.False(t, second.lost, "only the first is stale")
	l.settled([]*item{second}, nil)
	assert.Zero(t, l.count())
}

func TestLeasesAreExtendedEveryThirdOfTheirDuration(t *testing.T) {
	for name, rest := range map[string]time.Duration{"at once": 0, "after 90 minutes with nothing to do": 90 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newFakeGroup(0)
				r := run(t, g)
				pass(rest)
				g.add(1)
				msg := <-r.Messages()
				start := time.Now()
				pass(5*testLease + time.Second)
				require.NoError(t, msg.Context().Err())
				msg.Ack()
				r.end(t)
				require.NotEmpty(t, g.extended)
				first := g.extended[0].Sub(start)
				assert.LessOrEqual(t, first, testLease/3) // sooner, if the subscription has had its turn to claim before the message was there
				for i, at := range g.extended {
					assert.Equal(t, first+time.Duration(i)*testLease/3, at.Sub(start))
				}
				assert.GreaterOrEqual(t, len(g.extended), 15)
			})
		})
	}
}

func TestExtensionsReportWhichMessagesAreHandedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		r := run(t, g, func(c *Config) { c.MaxInFlight = 2; c.Lease = maxHold })
		msg := <-r.Messages()
		pass(maxHold * 2 / 5)
		g.view(func() {
			assert.ElementsMatch(t, []queue.Held{
				{Delivery: queue.Delivery{ID: msg.UUID, Receipt: "1"}, HandedOut: true},
				{Delivery: queue.Delivery{ID: otherOf(msg.UUID), Receipt: "1"}},
			}, g.heldLast)
		})
		msg.Ack()
	})
}

func otherOf(id string) string {
	if id == "0000" {
		return "0001"
	}
	return "0000"
}

func TestALeaseIsTreatedAsLostBeforeItExpires(t *testing.T) {
	for name, hangs := range map[string]time.Duration{"its extension fails": 0, "its extension hangs": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newFakeGroup(1)
				g.setHook(func(call string) error {
					if call != "extend" {
						return nil
					}
					pass(hangs)
					return errDown
				})
				start := time.Now()
				r := run(t, g)
				msg := <-r.Messages()
				<-msg.Context().Done()
				require.ErrorIs(t, context.Cause(msg.Context()), ErrLeaseLost)
				assert.Equal(t, testLease-time.Second, time.Since(start))
				msg.Ack()
				r.end(t)
				assert.Equal(t, []string{"0000"}, g.acked, "a late ack may still count")
				pass(hangs)
			})
		})
	}
}

func TestALeaseIsMeasuredFromWhenItsClaimWasSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.setHook(failing("extend", errDown))
		r := run(t, g)
		pass(testLease / 2)
		g.add(1)
		g.view(func() { g.latency = 25500 * time.Millisecond }) // maintain looks sooner
		g.hints <- 0
		sent := time.Now()
		msg := <-r.Messages()
		<-msg.Context().Done()
		require.ErrorIs(t, context.Cause(msg.Context()), ErrLeaseLost)
		assert.LessOrEqual(t, time.Since(sent), testLease-time.Second)
		g.view(func() { g.latency = 0 })
		msg.Ack()
		r.end(t)
		pass(time.Minute) // for the calls under way
	})
}

// TestASlowClaimReplyDoesNotReorderMessages although the next claim begins before the late messages are released.
func TestASlowClaimReplyDoesNotReorderMessages(t *testing.T) {
	for range 20 { // the claim and the worker race
		bubble(t, func(t *testing.T) {
			g := newFakeGroup(0)
			r := run(t, g)
			testSlowReply(t, g, func() string {
				msg := <-r.Messages()
				msg.Ack()
				return msg.UUID
			})
		})
		bubble(t, func(t *testing.T) {
			g, got := newFakeGroup(0), make(chan string)
			run(t, g, inBatches(3, func(batch []*message.Message) {
				for _, msg := range batch {
					got <- msg.UUID
					msg.Ack()
				}
			}))
			testSlowReply(t, g, func() string { return <-got })
		})
	}
}

// testSlowReply checks the order in which next gets messages of which the first come when their leases are over.
func testSlowReply(t *testing.T, g *fakeGroup, next func() string) {
	t.Helper()
	g.returns = true
	g.add(20)
	for range 20 { // handlers are fast
		next()
	}
	pass(2 * testPoll)
	g.add(8)
	g.view(func() { g.latency = testLease })
	g.hints <- 0
	pass(testLease / 2)
	g.add(8)
	pass(testLease / 2)
	g.view(func() { g.latency = time.Millisecond })
	for i := range 16 {
		require.Equal(t, fmt.Sprintf("%04d", 20+i), next())
	}
}

func TestContextsOfLostLeasesEndBeforeTheObserverIsCalled(t *testing.T) {
	const messages = 100
	ways := map[string]func(l *leases, items []*item){
		"not certain": func(l *leases, _ []*item) {
			l.report.leasesLost(l.dropUncertain(time.Now().Add(testLease)))
		},
		"not current": func(l *leases, items []*item) {
			l.extended(
				mapped(items, func(it *item) queue.Held { return queue.Held{Delivery: it.delivery()} }),
				mapped(items, func(it *item) string { return it.ID }), time.Now(),
			)
		},
		"claimed again": func(l *leases, items []*item) {
			l.hold(mapped(items, func(it *item) queue.Claimed { return claimed(it.ID, "2/0/1")[0] }), time.Now())
		},
	}
	for name, lose := range ways {
		t.Run(name, func(t *testing.T) {
			l := newTestLeases()
			var all []queue.Claimed
			for i := range messages {
				all = append(all, claimed(strconv.Itoa(i), "1")...)
			}
			var contexts []context.Context
			items := l.hold(all, time.Now())
			for _, it := range items {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				require.True(t, l.handOut(it, cancel))
				contexts = append(contexts, ctx)
			}
			reported := 0
			l.report.observer.LeaseLost = func(observe.LeaseLost) {
				reported++
				require.True(t, l.mu.TryLock(), "an observer is reported under a lock")
				l.mu.Unlock()
				for _, ctx := range contexts {
					require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
				}
			}
			lose(l, items)
			assert.Equal(t, messages, reported)
		})
	}
}

func TestASlowObserverDoesNotDelayTheLossOfALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(10)
		g.setHook(failing("extend", errDown))
		const slow = time.Second
		r := run(t, g, func(c *Config) {
			c.MaxInFlight = 20
			c.Observer.LeaseLost = func(observe.LeaseLost) { pass(slow) }
		})
		var messages []*message.Message
		for range 10 {
			messages = append(messages, <-r.Messages())
		}
		pass(3 * slow)
		g.add(1)
		g.hints <- 0
		start := time.Now()
		last := <-r.Messages()
		<-last.Context().Done()
		assert.LessOrEqual(t, time.Since(start), testLease-time.Second, "it waits for no call of the observer")
		for _, msg := range append(messages, last) {
			msg.Ack()
		}
		pass(20 * slow)
	})
}

func TestAMessageWhoseLeaseIsLostIsNotHandedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.setHook(failing("extend", errDown))
		r := run(t, g)
		pass(2 * testLease) // nobody reads
		select {
		case msg := <-r.Messages():
			require.Fail(t, "handed out", msg.UUID)
		default:
		}
	})
}
