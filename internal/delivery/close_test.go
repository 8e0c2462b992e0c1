package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestStopReleasesBufferedMessagesBeforeHandlersFinish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1000)
		r := run(t, g)
		learn(r, 500)
		slow := <-r.Messages()
		r.stop()
		pass(time.Millisecond)
		assert.Zero(t, g.held(1000, 501))
		slow.Ack()
		require.NoError(t, <-r.ended)
		assert.Len(t, g.acked, 501)
	})
}

func TestStopReleasesMessagesOfAClaimInProgress(t *testing.T) {
	for _, latency := range []time.Duration{300 * time.Millisecond, 3 * lastRetries} {
		bubble(t, func(t *testing.T) {
			g := newFakeGroup(1)
			g.latency = latency
			r := run(t, g)
			pass(100 * time.Millisecond)
			r.end(t)
			require.Len(t, g.released, 1)
			_, open := <-r.Messages()
			assert.False(t, open)
		})
	}
}

// TestAnUnansweredClaimIsReportedAsUnsettled, since it may have leased messages. It is repeated for lastRetries.
func TestAnUnansweredClaimIsReportedAsUnsettled(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration
		err   error
		ends  time.Duration
		want  error
	}{
		"it is lost":                {0, errDown, lastRetries, errUnsettled},
		"it is lost late":           {3 * lastRetries, errDown, 3 * lastRetries, errUnsettled},
		"it is too late":            {3 * lastRetries, context.DeadlineExceeded, 3 * lastRetries, errUnsettled},
		"an error is an answer":     {0, script.NotStoredError("OOM"), lastRetries, nil},
		"it lasts for CloseTimeout": {time.Hour, errDown, testCloseTimeout + closeGrace, errUnsettled},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newFakeGroup(1)
				g.setHook(func(call string) error {
					if call != "claim" {
						return nil
					}
					pass(test.takes)
					return test.err
				})
				r := run(t, g)
				synctest.Wait()
				start := time.Now()
				r.stop()
				require.ErrorIs(t, <-r.ended, test.want)
				assert.Equal(t, test.ends, time.Since(start))
				g.view(func() { assert.Equal(t, test.takes < lastRetries, len(g.requests) > 1) })
				pass(2 * time.Hour)
			})
		})
	}
}

// TestStopLosesNoMessagesThatAreBeingReleased: messages that a slow message or a pause has removed from the buffer reach Redis
// even if the subscription stops at that moment.
func TestStopLosesNoMessagesThatAreBeingReleased(t *testing.T) {
	causes := map[string]func(r *running, groups []*fakeGroup){
		"slow message": func(r *running, _ []*fakeGroup) {
			r.buffer.mu.Lock()
			oldest, _ := r.buffer.oldest()
			r.buffer.mu.Unlock()
			pass(time.Until(oldest.Add(maxHold)))
		},
		"pause": func(_ *running, groups []*fakeGroup) { groups[0].paused <- struct{}{} },
	}
	for name, cause := range causes {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				bubble(t, func(t *testing.T) { stopWhileReleasing(t, cause) })
			}
		})
	}
}

func stopWhileReleasing(t *testing.T, cause func(r *running, groups []*fakeGroup)) {
	t.Helper()
	topic := &fakeTopic{}
	for range 8 {
		topic.add(newFakeGroup(500))
	}
	r := runTopic(t, topic)
	learn(r, 1000)
	slow := <-r.Messages()
	pass(time.Millisecond)
	slow.Ack()
	last := <-r.Messages()
	synctest.Wait()
	go func() {
		cause(r, topic.groups)
		last.Ack()
		r.stop()
	}()
	require.NoError(t, <-r.ended)
	lost := 0
	for _, g := range topic.groups {
		lost += g.added - len(g.ready) - len(g.released) - len(g.acked)
	}
	require.Zero(t, lost, "messages that nobody gave back")
}

func TestStopRepeatsAClaimWhoseReplyWasLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		failing, failed := make(chan struct{}), make(chan struct{})
		lost := false
		g.setHook(func(call string) error {
			if call != "claim" || lost {
				return nil
			}
			lost = true
			close(failing)
			<-failed
			return errDown
		})
		r := run(t, g)
		<-failing
		r.stop()
		close(failed)
		require.NoError(t, <-r.ended)
		require.Len(t, g.requests, 2)
		assert.Equal(t, g.requests[0].Number, g.requests[1].Number)
		assert.Len(t, g.released, 1)
	})
}

func TestStopTakesAtMostCloseTimeoutPlusGrace(t *testing.T) {
	for _, hung := range []string{"claim", "ack", "extend", "leave", ""} {
		t.Run("hung "+hung, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newFakeGroup(3)
				r := run(t, g)
				(<-r.Messages()).Ack()
				msg := <-r.Messages()
				g.setHook(func(call string) error {
					if call == hung {
						pass(time.Hour)
					}
					return nil
				})
				g.hints <- 0
				pass(testLease)
				start := time.Now()
				r.stop()
				pass(time.Second)
				msg.Ack()
				if err := <-r.ended; hung == "" || hung == "leave" {
					require.NoError(t, err)
				}
				assert.LessOrEqual(t, time.Since(start), testCloseTimeout+closeGrace)
				pass(2 * time.Hour)
			})
		})
	}
}

func TestAHandlerThatOutlastsCloseTimeoutLosesItsMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(t, g)
		msg := <-r.Messages()
		start := time.Now()
		r.end(t)
		assert.Equal(t, testCloseTimeout, time.Since(start))
		require.ErrorIs(t, context.Cause(msg.Context()), ErrCloseTimeout)
		assert.Equal(t, []queue.Nack{{Delivery: queue.Delivery{ID: "0000", Receipt: "1"}}}, g.nacked)
	})
}

func TestAHangingDecoderDoesNotDelayStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(t, g, func(c *Config) {
			decode := c.Decode
			c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, time.Time, error) {
				pass(time.Hour)
				return decode(ctx, m)
			}
		})
		pass(time.Second)
		start := time.Now()
		r.stop()
		require.Error(t, <-r.ended)
		assert.LessOrEqual(t, time.Since(start), testCloseTimeout+closeGrace)
		pass(2 * time.Hour)
	})
}
