package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// everywhere runs a test on a topic of one partition, and on one of four in a Cluster.
func everywhere(t *testing.T, test func(t *testing.T, s *scene, partitions int)) {
	t.Helper()
	t.Run("standalone", func(t *testing.T) { test(t, newScene(t), 1) })
	t.Run("cluster", func(t *testing.T) { test(t, newSceneWith(t, redistest.SharedCluster(t).Client(t)), 4) })
}

// numbered are so many message keys.
func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%05d", i)
	}
	return keys
}

// all are the entries that a query matches.
func (s *scene) all(q Query) (entries []Entry) {
	s.T.Helper()
	for e, err := range s.admin.AllEntries(s.T.Context(), s.Topic, q) {
		require.NoError(s.T, err)
		entries = append(entries, e)
	}
	return entries
}

func idsIn(entries []Entry) (ids []string) {
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

// groups is a group in each partition.
func (s *scene) groups(partitions int, name string) (list []*queue.Group) {
	s.T.Helper()
	for n := range partitions {
		list = append(list, s.group(n, name))
	}
	return list
}

// deadMessages publishes messages with these keys, and makes them dead messages of a group.
func (s *scene) deadMessages(partitions int, name string, keys ...string) {
	s.T.Helper()
	s.publish(0, partitions, keys...)
	for _, g := range s.groups(partitions, name) {
		for {
			claimed := s.claim(g, "c", 1000, "")
			if len(claimed) == 0 {
				break
			}
			var burials []queue.Burial
			for _, c := range claimed {
				burials = append(burials, queue.Burial{Delivery: queue.Delivery{ID: c.ID, Receipt: c.Receipt}, Reason: "no route"})
			}
			stale, err := g.Bury(s.T.Context(), burials)
			require.NoError(s.T, err)
			require.Empty(s.T, stale)
		}
	}
}

// operations are bulk operations by name.
var operations = map[string]func(ctx context.Context, s *scene, which Selection, progress func(Progress)) (Progress, error){
	"cancel": func(ctx context.Context, s *scene, which Selection, progress func(Progress)) (Progress, error) {
		return s.admin.Cancel(ctx, s.Topic, which, progress)
	},
	"reschedule": func(ctx context.Context, s *scene, which Selection, progress func(Progress)) (Progress, error) {
		return s.admin.Reschedule(ctx, s.Topic, which, delay.For(2*time.Hour), progress)
	},
	"requeue": func(ctx context.Context, s *scene, which Selection, progress func(Progress)) (Progress, error) {
		return s.admin.Requeue(ctx, s.Topic, which, progress)
	},
	"discard": func(ctx context.Context, s *scene, which Selection, progress func(Progress)) (Progress, error) {
		return s.admin.Discard(ctx, s.Topic, which, progress)
	},
	"bury": func(ctx context.Context, s *scene, which Selection, progress func(Progress)) (Progress, error) {
		return s.admin.Bury(ctx, s.Topic, which, "bad", progress)
	},
}

// arrange stores n messages for an operation: dead messages for requeue and discard, else messages that are due in an hour.
func (s *scene) arrange(operation string, partitions, n int) {
	s.T.Helper()
	if operation == "requeue" || operation == "discard" {
		s.deadMessages(partitions, "g", numbered(n)...)
		return
	}
	s.publish(time.Hour, partitions, numbered(n)...)
}

// both runs an operation on messages by their ids and on others by their keys, and adds up.
func both(run func(Selection) (Progress, error), byID, byKey Selection) (sum Progress, err error) {
	for _, which := range []Selection{byID, byKey} {
		got, err := run(which)
		if err != nil {
			return sum, err
		}
		sum.Done, sum.Skipped = sum.Done+got.Done, sum.Skipped+got.Skipped
		if got.LastSkip != nil {
			sum.LastSkip = got.LastSkip
		}
	}
	return sum, nil
}

func TestOperationsSelectMessagesByIDAndKey(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		s.publish(time.Hour, partitions, numbered(40)...)
		list := s.all(Query{})
		require.Len(t, list, 40)
		byID := []string{list[3].ID, list[9].ID, list[30].ID, "unknown", list[3].ID}
		byKey := []string{list[12].Key, "nobody's", list[13].Key}
		var reported []Progress
		cancel := func(which Selection) (Progress, error) {
			return s.admin.Cancel(t.Context(), s.Topic, which, func(p Progress) { reported = append(reported, p) })
		}
		got, err := both(cancel, ByID(byID...), ByKey(byKey...))
		require.NoError(t, err)
		require.ErrorIs(t, got.LastSkip, ErrMessageNotFound)
		assert.ErrorContains(t, got.LastSkip, "nobody's")
		last := got.LastSkip
		assert.Equal(t, Progress{Done: 5, Skipped: 2, LastSkip: last}, got)
		assert.Equal(t, Progress{Done: 2, Skipped: 1, LastSkip: last}, reported[len(reported)-1])
		assert.Len(t, reported, 4, "one step of ids, and one for each key")
		assert.Equal(t, 35, s.count(Query{}))

		byID = []string{list[0].ID, list[3].ID}
		got, err = s.admin.Reschedule(t.Context(), s.Topic, ByID(byID...), delay.For(2*time.Hour), nil)
		require.NoError(t, err)
		assert.Equal(t, []int{1, 1}, []int{got.Done, got.Skipped})
		got, err = s.admin.Reschedule(t.Context(), s.Topic, ByKey(list[1].Key, list[2].Key), delay.For(2*time.Hour), nil)
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: 2}, got)
		later := s.all(Query{From: s.Now().Add(90 * time.Minute)})
		assert.ElementsMatch(t, idsIn(list[:3]), idsIn(later))
		assert.Equal(t, later[1].At, later[2].At, "all get the same due time")
	})
}

func TestOperationsSelectDeadMessagesByIDAndKey(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		s.deadMessages(partitions, "g", numbered(12)...)
		s.groups(partitions, "h")
		list := s.all(Query{Set: Dead})
		require.Len(t, list, 12)
		requeue := func(which Selection) (Progress, error) { return s.admin.Requeue(t.Context(), s.Topic, which, nil) }
		got, err := both(requeue, ByID(list[0].ID, "unknown"), ByKey(list[1].Key))
		require.NoError(t, err)
		assert.Equal(t, []int{2, 1}, []int{got.Done, got.Skipped})
		require.ErrorIs(t, got.LastSkip, ErrNotDead)
		discard := func(which Selection) (Progress, error) {
			return s.admin.Discard(t.Context(), s.Topic, which.OfGroup("g"), nil)
		}
		got, err = both(discard, ByID(list[2].ID), ByKey(list[3].Key))
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: 2}, got)
		got, err = s.admin.Discard(t.Context(), s.Topic, ByID(list[4].ID).OfGroup("h"), nil)
		require.NoError(t, err)
		assert.Equal(t, 1, got.Skipped, "it is a dead message of another group")
		assert.Equal(t, 8, s.count(Query{Set: Dead}))
		assert.ElementsMatch(t, idsIn(list[:2]), idsIn(s.all(Query{Set: Waiting, Group: "g"})))

		bury := func(which Selection) (Progress, error) {
			return s.admin.Bury(t.Context(), s.Topic, which, "by anna", nil)
		}
		got, err = both(bury, ByID(list[0].ID), ByKey(list[1].Key, list[5].Key))
		require.NoError(t, err)
		assert.Equal(t, []int{2, 1}, []int{got.Done, got.Skipped})
		require.ErrorIs(t, got.LastSkip, ErrNotWaiting)
		assert.Len(t, s.all(Query{Set: Dead, Reason: "by anna"}), 2)

		got, err = s.admin.Cancel(t.Context(), s.Topic, ByID(list[5].ID), nil)
		require.NoError(t, err)
		require.ErrorIs(t, got.LastSkip, redisdelay.ErrMessageDead)
	})
}

// TestOperationsAffectAllMatchingMessages and no others.
func TestOperationsAffectAllMatchingMessages(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		s.publish(time.Hour, partitions, numbered(30)...)
		s.publish(3*time.Hour, partitions, "x1", "x2", "x3")
		late := Query{From: s.Now().Add(2 * time.Hour)}
		got, err := s.admin.Cancel(t.Context(), s.Topic, Matching(late), nil)
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: 3}, got, "the purge of a range")
		assert.Equal(t, 30, s.count(Query{}))
		s.publish(time.Hour, partitions, "x1") // its key is free

		some := Query{KeyPrefix: "k0000"}
		got, err = s.admin.DeliverNow(t.Context(), s.Topic, Matching(some), nil)
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: 10}, got)
		assert.Equal(t, 10, s.count(Query{Set: Waiting}))
		s.unchanged(func() {
			got, err = s.admin.DeliverNow(t.Context(), s.Topic, Matching(Query{Set: Waiting}), nil)
			require.NoError(t, err)
			assert.Equal(t, Progress{}, got, "they are due already")
		})

		held := 0
		for _, g := range s.groups(partitions, "g") {
			held += len(s.claim(g, "c", 1, ""))
		}
		got, err = s.admin.Bury(t.Context(), s.Topic, Matching(Query{}), "by anna", nil)
		require.NoError(t, err)
		assert.Equal(t, 10-held, got.Done+got.Skipped)
		if got.Skipped > 0 { // the claim of one gave the rest to the group, or not
			require.ErrorIs(t, got.LastSkip, ErrNotWaiting)
		}
		got, err = s.admin.Bury(t.Context(), s.Topic, Matching(Query{Set: InDelivery, Group: "g"}), "by anna", nil)
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: held}, got)

		dead := s.count(Query{Set: Dead})
		got, err = s.admin.Discard(t.Context(), s.Topic, Matching(Query{Reason: "anna"}), nil)
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: dead}, got)
		assert.Zero(t, s.count(Query{Set: Dead}))
	})
}

// TestAnOperationCanBeInterruptedAndContinued between its steps: each message counts once.
func TestAnOperationCanBeInterruptedAndContinued(t *testing.T) {
	const n = 450
	for name, after := range map[string]func(t *testing.T, s *scene){
		"cancel": func(t *testing.T, s *scene) { assert.Zero(t, s.count(Query{})) },
		"reschedule": func(t *testing.T, s *scene) {
			list := s.all(Query{})
			require.Len(t, list, n)
			assert.Equal(t, list[0].At, list[n-1].At, "all have the same due time, also those after the interruptions")
		},
		"requeue": func(t *testing.T, s *scene) {
			assert.Zero(t, s.count(Query{Set: Dead}))
			assert.Equal(t, n, s.count(Query{Set: Waiting}))
		},
		"discard": func(t *testing.T, s *scene) { assert.Zero(t, s.count(Query{Set: Dead})) },
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *scene, partitions int) {
				s.arrange(name, partitions, n)
				which := Matching(Query{})
				done, runs := 0, 0
				for again := true; again; runs++ {
					ctx, cancel := context.WithCancel(t.Context())
					got, err := operations[name](ctx, s, which, func(Progress) { cancel() })
					done += got.Done
					assert.Zero(t, got.Skipped)
					assert.LessOrEqual(t, got.Done, pageSize)
					require.Less(t, runs, 100)
					if again = err != nil; again {
						require.ErrorIs(t, err, context.Canceled)
						require.NotEmpty(t, got.Cursor)
					}
					which = Matching(Query{Cursor: got.Cursor})
					cancel()
				}
				assert.Equal(t, n, done)
				assert.Greater(t, runs, n/pageSize)
				after(t, s)
			})
		})
	}
}

// TestOperationsTerminateWhileMessagesArrive: with each step, more messages arrive than the step handled.
func TestOperationsTerminateWhileMessagesArrive(t *testing.T) {
	const n = 300
	errEndless := errors.New("it does not end")
	come := map[Set]func(s *scene, g *queue.Group, keys []string){
		Scheduled: func(s *scene, _ *queue.Group, keys []string) {
			s.publish(time.Hour, 1, keys...)
		},
		Waiting: func(s *scene, g *queue.Group, keys []string) {
			s.publish(0, 1, keys...)
			s.nack(g, time.Hour, s.claim(g, "c", n, "")...)
		},
		InDelivery: func(s *scene, g *queue.Group, keys []string) {
			s.publish(0, 1, keys...)
			require.Len(s.T, s.claim(g, "c", n, ""), n)
		},
	}
	for in, come := range come {
		t.Run(string(in), func(t *testing.T) {
			s := newScene(t)
			g := s.group(0, "g")
			batches := 0
			next := func() {
				batches++
				keys := make([]string, n)
				for i := range keys {
					keys[i] = fmt.Sprint(batches, "/", i)
				}
				come(s, g, keys)
				time.Sleep(2 * time.Millisecond) //nolint:forbidigo // the next ones have a later time
			}
			next()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			which := Matching(Query{Set: in})
			got, err := s.admin.Cancel(ctx, s.Topic, which, func(Progress) {
				next()
				if batches > 10 {
					cancel(errEndless)
				}
			})
			require.NoError(t, err)
			assert.Equal(t, Progress{Done: n}, got)
			assert.Equal(t, (batches-1)*n, s.count(Query{Set: in}))
		})
	}
}

func TestInvalidSelectionsAndReasonsAreErrors(t *testing.T) {
	s := newScene(t)
	s.deadMessages(1, "g", "a")
	cancel := func(which Selection) error { return fixture.ErrOf(s.admin.Cancel(t.Context(), s.Topic, which, nil)) }
	requeue := func(which Selection) error { return fixture.ErrOf(s.admin.Requeue(t.Context(), s.Topic, which, nil)) }
	s.unchanged(func() {
		for field, err := range map[string]error{
			"Group":       cancel(ByID("a").OfGroup("g")),
			"ID":          cancel(ByID("a", "")),
			"Key":         cancel(ByKey("")),
			"Set":         requeue(Matching(Query{Set: Scheduled})),
			"Cursor":      requeue(Matching(Query{Cursor: "nonsense"})),
			"Cursor ":     requeue(Matching(Query{Cursor: "1.nonsense"})),
			"MinAttempts": cancel(Matching(Query{MinAttempts: -1})),
		} {
			var wrong *QueryError
			require.ErrorAs(t, err, &wrong, field)
			assert.Equal(t, strings.TrimSpace(field), wrong.Field)
		}
		require.ErrorIs(t, requeue(ByID("a").OfGroup("h")), ErrGroupNotFound)
		require.ErrorIs(t, requeue(Matching(Query{}).OfGroup("h")), ErrGroupNotFound)
		for _, none := range []Selection{{}, ByID(), ByKey()} {
			require.NoError(t, requeue(none))
		}
		require.ErrorIs(t, requeue(Matching(Query{Group: "h"})), ErrGroupNotFound)
		for _, reason := range []string{"", " \n", "\xff", strings.Repeat("x", redisdelay.MaxReasonBytes+1)} {
			_, err := s.admin.Bury(t.Context(), s.Topic, ByID("a"), reason, nil)
			require.ErrorIs(t, err, ErrInvalidReason, "%q", reason)
		}
		var late *redisdelay.DelayError
		_, err := s.admin.Reschedule(t.Context(), s.Topic, ByID("a"), delay.Until(time.Unix(1<<40, 0)), nil)
		require.ErrorAs(t, err, &late)
	})
	_, err := s.admin.Cancel(t.Context(), s.Topic+" unknown", ByID("a"), nil)
	require.ErrorIs(t, err, ErrTopicNotFound)
	_, err = s.admin.Cancel(t.Context(), "", ByID("a"), nil)
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = s.admin.Cancel(ended, s.Topic, ByID("a"), nil)
	require.ErrorIs(t, err, context.Canceled)
}

// TestOperationsIncludeDeadMessagesFromTheFuture: their time is ahead because the clock was set back.
func TestOperationsIncludeDeadMessagesFromTheFuture(t *testing.T) {
	for _, byID := range []bool{false, true} {
		for _, name := range []string{"requeue", "discard"} {
			t.Run(fmt.Sprint(name, byID), func(t *testing.T) {
				s := newScene(t)
				s.arrange(name, 2, 2)
				ids := idsIn(s.all(Query{Set: Dead}))
				future := float64(s.Now().Add(time.Minute).UnixMilli())
				for n := range 2 {
					dead := s.admin.store.Topic(s.Topic).Partition(n).Key(script.DeadOf, "g")
					for _, id := range ids {
						require.NoError(t, s.Client.ZAddXX(t.Context(), dead, z(future, id)).Err())
					}
				}
				which := Matching(Query{Set: Dead})
				if byID {
					which = ByID(ids...)
				}
				got, err := operations[name](t.Context(), s, which, nil)
				require.NoError(t, err)
				assert.Equal(t, Progress{Done: 2}, got)
			})
		}
	}
}

// otherClock sets the clock of all partitions but the first one, as package admin reads it.
type otherClock struct {
	redistest.Hook
	ahead time.Duration
}

func (h otherClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, is := cmd.(*redis.TimeCmd); is {
			c.SetVal(c.Val().Add(h.ahead))
		}
		return err
	}
}

// TestOperationsUseTheClockOfEachPartition to decide which dead messages existed when they began.
func TestOperationsUseTheClockOfEachPartition(t *testing.T) {
	for _, byID := range []bool{false, true} {
		s := newScene(t)
		s.deadMessages(2, "g", numbered(20)...)
		ids := idsIn(s.all(Query{Set: Dead}))
		first := int(s.Client.ZCard(t.Context(), s.admin.store.Topic(s.Topic).Partition(0).Key(script.DeadOf, "g")).Val())
		require.NotZero(t, first)
		require.Less(t, first, 20)
		which := Matching(Query{Set: Dead})
		if byID {
			which = ByID(ids...)
		}
		// The other partition's clock is behind: its dead messages are newer than the start.
		got, err := s.another(otherClock{ahead: -time.Hour}).admin.Requeue(t.Context(), s.Topic, which, nil)
		require.NoError(t, err)
		assert.Equal(t, first, got.Done)
		got, err = s.another(otherClock{}).admin.Requeue(t.Context(), s.Topic, which, nil)
		require.NoError(t, err)
		assert.Equal(t, 20-first, got.Done)
	}
}
