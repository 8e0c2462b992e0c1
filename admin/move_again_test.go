package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestAMessageThatCameBackIsMovedAgain: moved, copied back, and cancelled where it was moved to. That
// it has arrived there once does not show that it is there.
func TestAMessageThatCameBackIsMovedAgain(t *testing.T) {
	base := newScene(t)
	from, to := base.beside("/a"), base.beside("/b")
	from.publish(time.Hour, 1, "k")
	all := Matching(Query{})
	require.NoError(t, fixture.ErrOf(from.admin.Move(t.Context(), from.Topic, all, to.Topic, nil)))
	require.NoError(t, fixture.ErrOf(to.admin.Copy(t.Context(), to.Topic, all, from.Topic, nil)))
	require.NoError(t, fixture.ErrOf(to.admin.Cancel(t.Context(), to.Topic, all, nil)))
	got, err := from.admin.Move(t.Context(), from.Topic, all, to.Topic, nil)
	require.NoError(t, err)
	assert.Equal(t, Progress{Done: 1}, got)
	assert.Equal(t, []string{"k"}, keysOf(to.list(Query{}).Entries))
	assert.Empty(t, from.all(Query{}))
}

// TestAMoveThatGoesBackFindsWhatStayed in another partition than the one it would choose, since the first Move
// ended before it took the messages out.
func TestAMoveThatGoesBackFindsWhatStayed(t *testing.T) {
	base := newScene(t)
	from, to := base.beside("/a"), base.beside("/b")
	for range 6 { // each goes to another partition
		from.publish(time.Hour, 3, "")
	}
	ids := idsIn(from.all(Query{}))
	all := Matching(Query{})
	require.NoError(t, fixture.ErrOf(from.admin.Copy(t.Context(), from.Topic, all, to.Topic, nil)))
	got, err := to.admin.Move(t.Context(), to.Topic, all, from.Topic, nil)
	require.NoError(t, err)
	assert.Equal(t, Progress{Done: 6}, got)
	assert.Equal(t, ids, idsIn(from.all(Query{})), "each once")
	assert.Empty(t, to.all(Query{}))
}

// TestMovesThatMeetLoseNothing: a message that both topics have, as a copy, is moved both ways at
// once. The one begins and ends between two calls of the other.
func TestMovesThatMeetLoseNothing(t *testing.T) {
	base := newScene(t)
	met := 0
	for calls := 1; ; calls++ {
		from := base.beside(fmt.Sprint("/a", calls))
		to := from.beside("/b")
		from.publish(time.Hour, 1, "k")
		all := Matching(Query{})
		require.NoError(t, fixture.ErrOf(from.admin.Copy(t.Context(), from.Topic, all, to.Topic, nil)))
		between := &between{before: int64(calls), do: func() {
			require.NoError(t, fixture.ErrOf(to.admin.Move(t.Context(), to.Topic, all, from.Topic, nil)))
		}}
		got, err := from.another(between).admin.Move(t.Context(), from.Topic, all, to.Topic, nil)
		require.NoError(t, err)
		require.NotEmpty(t, append(from.all(Query{}), to.all(Query{})...), "before call %d", calls)
		if got.Skipped > 0 {
			require.ErrorIs(t, got.Last, ErrInBothTopics)
			met++
		}
		if between.calls.Load() < between.before {
			require.Positive(t, met)
			return
		}
	}
}

// between does something before one of the script calls.
type between struct {
	redistest.Hook
	before int64
	do     func()
	calls  atomic.Int64
}

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && b.calls.Add(1) == b.before {
			b.do()
		}
		return next(ctx, cmd)
	}
}

// TestAMoveBesideConsumersLosesNothing: consumers of both topics handle what they get. A message
// that both have handled was skipped.
func TestAMoveBesideConsumersLosesNothing(t *testing.T) {
	const count = 3000
	s := newScene(t)
	to := s.beside("/to")
	keys := numbered(count)
	for some := range slices.Chunk(keys, 1000) {
		s.publish(0, 1, some...)
	}
	s.groups(1, "g")
	to.publish(time.Hour, 1, "there")
	to.groups(1, "t")
	ctx, stop := context.WithCancel(t.Context())
	copied := func() bool { return to.Client.Exists(t.Context(), to.Key("arrived")).Val() > 0 }
	var handled [2][]string
	var consumers sync.WaitGroup
	for i, one := range []*scene{s, to} {
		g := one.group(0, []string{"g", "t"}[i])
		consumers.Go(func() { // ends with ctx, when nothing is left
			for n := 1; n > 0 || ctx.Err() == nil; {
				for i == 0 && len(handled[i]) > count/4 && ctx.Err() == nil && !copied() {
					<-time.After(time.Millisecond) // so that it does not take all that is for it before the move begins
				}
				if i == 0 && len(handled[i]) > count/2 && ctx.Err() == nil {
					<-ctx.Done() // the rest is for the move
				}
				claimed := one.claim(g, "c", 5, "")
				n = len(claimed)
				for _, c := range claimed {
					handled[i] = append(handled[i], keyOf(c.ID))
					one.ack(g, c)
				}
			}
		})
	}
	got, err := s.another(slow{}).admin.Move(t.Context(), s.Topic, Matching(Query{In: Waiting}), to.Topic, nil)
	stop()
	consumers.Wait()
	require.NoError(t, err)
	all := slices.Concat(handled[0], handled[1])
	slices.Sort(all)
	assert.Equal(t, keys, slices.Compact(slices.Clone(all)), "each was handled")
	twice := len(all) - count
	t.Logf("%d were handled here, %d there, %d of them in both topics", len(handled[0]), len(handled[1]), twice)
	assert.Positive(t, got.Done)
	assert.Positive(t, twice, "a consumer took some after they were copied")
	assert.Equal(t, got.Skipped, twice, "those were told")
	assert.ErrorIs(t, got.Last, ErrInBothTopics)
}

// TestNamesOfAnyBytes are those of a topic to move to, and of a topic and groups in cursors.
func TestNamesOfAnyBytes(t *testing.T) {
	base := newScene(t)
	from, to := base.beside("/a\xff"), base.beside("/b\xfe\x80")
	for _, group := range []string{"g\xfd", "g\xfe", "g\xff"} {
		from.groups(1, group)
	}
	from.publish(0, 1, "k", "l")
	for _, group := range []string{"g\xfd", "g\xfe", "g\xff"} {
		g := from.group(0, group)
		from.bury(g, "bad", from.claim(g, "c", 2, "")...)
	}
	var got []string
	for _, e := range from.lists(Query{In: Dead, Limit: 1}, func() {}) {
		got = append(got, e.Group+" "+e.Key)
	}
	assert.ElementsMatch(t, keysOf(from.all(Query{In: Dead})), got)
	assert.Len(t, got, 6)

	_, err := from.admin.Move(t.Context(), from.Topic, Matching(Query{In: Dead}), to.Topic, nil)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"k", "l"}, keysOf(to.all(Query{})))
}

// moverEnv has the moverJob of a process that does nothing but move.
const moverEnv = "REDISDELAY_TEST_MOVER"

type moverJob struct {
	Addrs    []string
	From, To string
}

// moveInProcess is such a process.
func moveInProcess(text string) error {
	var job moverJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: job.Addrs})
	client.AddHook(slow{})
	a, err := New(Config{Client: client})
	if err != nil {
		return err
	}
	_, err = a.Move(context.Background(), job.From, Matching(Query{In: Waiting}), job.To, nil)
	return err
}

// slow makes script calls take longer, so that there is time for a kill in each.
type slow struct{ redistest.Hook }

func (slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		<-time.After(5 * time.Millisecond)
		err := next(ctx, cmd)
		<-time.After(5 * time.Millisecond)
		return err
	}
}

// TestAMoveWhoseProcessIsKilledTenTimes loses nothing, while the other topic delivers. What was copied
// when a process died may come once more.
func TestAMoveWhoseProcessIsKilledTenTimes(t *testing.T) {
	const partitions, count = 4, 10_000
	cluster := redistest.SharedCluster(t)
	s := newSceneWith(t, cluster.Client(t))
	to := s.beside("/to")
	keys := numbered(count)
	for some := range slices.Chunk(keys, 1000) {
		s.publish(0, partitions, some...)
	}
	to.publish(time.Hour, partitions, "there") // so that it has partitions
	to.groups(partitions, "t")

	ctx, stop := context.WithCancel(t.Context())
	var delivered atomic.Int64
	ended := make(chan []string)
	go func() { // ends with ctx; the test waits for ended
		var list []string
		defer func() { ended <- list }()
		for ctx.Err() == nil {
			list = append(list, to.drained(partitions, "t")...)
			delivered.Store(int64(len(list)))
		}
	}()

	kills := 0
	for ; kills < 10; kills++ {
		text, err := json.Marshal(moverJob{cluster.Addrs(), s.Topic, to.Topic})
		require.NoError(t, err)
		process := exec.Command(os.Args[0])
		process.Env, process.Stderr = append(os.Environ(), moverEnv+"="+string(text)), os.Stderr
		before := delivered.Load()
		require.NoError(t, process.Start())
		require.Eventually(t, func() bool { return delivered.Load() > before }, fixture.Soon, time.Millisecond)
		<-time.After(time.Duration(rand.IntN(60_000)) * time.Microsecond)
		require.NoError(t, process.Process.Kill())
		if process.Wait() == nil {
			break // this process stood still, and the other one has moved all
		}
	}
	require.Positive(t, kills, "%d of %d delivered", delivered.Load(), count)
	got, err := s.admin.Move(t.Context(), s.Topic, Matching(Query{In: Waiting}), to.Topic, nil)
	require.NoError(t, err)
	assert.Zero(t, got.Skipped)
	stop()
	list := append(<-ended, to.drained(partitions, "t")...)
	slices.Sort(list)
	require.Equal(t, keys, slices.Compact(slices.Clone(list)))
	t.Logf("%d of %d messages were delivered twice, in %d kills", len(list)-count, count, kills)
	assert.LessOrEqual(t, len(list)-count, kills*copySize, "a step for each kill")
	assert.Empty(t, slices.DeleteFunc(s.Kinds(), func(kind string) bool { return kind == "partitions" }), "left of the topic")
}
