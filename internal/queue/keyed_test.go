package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestCancelAndRescheduleFindAConstantlyReplacedKey(t *testing.T) {
	for name, call := range map[string]request{
		"cancel":     cancelBy("key", "k"),
		"reschedule": rescheduleBy("key", "k", "in", time.Hour.Milliseconds()),
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			r.group("g")
			for round := range 100 {
				r.push(after(keyed(0, "k"), 3600))
				stop, stopped := make(chan struct{}), make(chan error, 1)
				go func() { stopped <- r.replace("k", round, stop) }()
				err := errOf(r.change(call))
				close(stop)
				require.NoError(t, <-stopped)
				require.NoError(t, err, "round %d", round)
				err = errOf(r.change(cancelBy("key", "k"))) // what is left
				require.True(t, err == nil || errors.Is(err, ErrNotFound), "%v", err)
			}
		})
	}
}

// change makes a call of Cancel or Reschedule in the partition, as a Topic does in all of its partitions.
func (r *scene) change(call request) (Status, error) {
	r.T.Helper()
	status, _, err := r.partition.change(r.Ctx(), call)
	return status, err
}

// replace publishes one message after another under a key, until stop closes.
func (r *scene) replace(key string, round int, stop <-chan struct{}) error {
	for n := 1; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		_, err := r.partition.Push(r.Ctx(), Batch{
			Publisher: fmt.Sprint("replacer ", round), Number: int64(n), Duplicates: ReplaceDuplicates,
			Calls: [][]Message{{after(keyed(n, key), 3600)}},
		})
		if err != nil {
			return err
		}
	}
}

// keyedCall returns calls of cancel or reschedule with the same request. Their time limit is left
// from now, by Redis's clock.
func (r *scene) keyedCall(s *script.Script, request int64, left time.Duration) func() []any {
	r.T.Helper()
	return r.keyedCallFor("k", s, request, left)
}

func (r *scene) keyedCallFor(key string, s *script.Script, request int64, left time.Duration) func() []any {
	r.T.Helper()
	until := r.Now().Add(left).UnixMilli()
	args := []any{"caller of " + s.Name(), request, until, "key", key}
	if s == rescheduleScript {
		args = append(args, "in", 5_000)
	}
	args = append(args, r.partition.Channel())
	return func() []any {
		r.T.Helper()
		reply, err := r.partition.Run(r.Ctx(), s, "", args)
		require.NoError(r.T, err)
		return reply.Values()
	}
}

// TestALateCancelOrRescheduleChangesNothing because its caller has stopped waiting, and may have published the next message
// with the key.
func TestALateCancelOrRescheduleChangesNothing(t *testing.T) {
	for _, s := range []*script.Script{cancelScript, rescheduleScript} {
		r := newScene(t)
		r.push(after(keyed(1, "k"), 60))
		before := r.State()
		reply := r.keyedCall(s, 1, -time.Second)()
		require.Len(t, reply, 2)
		assert.Equal(t, "groups", reply[0])
		assert.Equal(t, before, r.State())
	}
}

// TestCancelIDLeavesTheKeyToItsNewHolder, with its window.
func TestCancelIDLeavesTheKeyToItsNewHolder(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	first, second := keyed(1, "k"), keyed(2, "k")
	r.push(due(first))
	r.bury(g, first)
	r.claim(h, "c", 1)
	refused := r.pushWindow(1<<41, RejectDuplicates, []Message{after(second, 60)})
	require.Empty(t, refused)
	want := r.State()
	require.Contains(t, want, "dedup k")
	delete(want, "unack:h "+first)
	want["refs "+first] = `["g"]`
	status, err := r.partition.CancelID(t.Context(), first)
	require.NoError(t, err)
	assert.Equal(t, StateInDelivery, status.Groups["h"])
	assert.Equal(t, want, r.State())
	require.NoError(t, errOf(r.partition.CancelID(t.Context(), second)))
	assert.NotContains(t, r.State(), "dedup k", "the holder's window ends with it")
	assert.NotContains(t, r.State(), "keys k")
}
