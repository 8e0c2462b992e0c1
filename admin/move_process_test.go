package admin

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

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
type slow struct{ fixture.Hook }

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
		require.Error(t, process.Wait(), "it was killed, and had not ended: %d of %d delivered", delivered.Load(), count)
	}
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
