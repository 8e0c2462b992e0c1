package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestBroadcastSubscribersComeAndGo has processes with Broadcast subscribers that close or
// are killed, beside a steady group, which loses nothing. Once all have gone, their groups
// expire, and nothing of them is left.
func TestBroadcastSubscribersComeAndGo(t *testing.T) {
	onlyInFull(t)
	t.Parallel() // it mostly waits for groups to expire
	s := newScene(t)
	processes, each := 10, 5
	const churn = 10 * time.Minute
	const gone = 90 * time.Second // as docs/use/groups.md promises if nothing else happens in the topic
	steady := spawn(t, s.job(func(j *job) { j.MaxInFlight = 20 }), s.history)
	s.until("the steady group is there: no message goes to the guests alone", quiet, func() bool { return len(s.groups()) > 0 })
	publisher := spawn(t, s.job(func(j *job) {
		j.Publish, j.Name, j.Batch, j.Partitions, j.Every, j.Delay = true, "m", 2, 2, 20*time.Millisecond, 10*time.Millisecond
	}), s.history)
	spawned := 0
	start := func() *process {
		spawned++
		return spawn(t, s.job(func(j *job) {
			j.Group, j.Consumers, j.MaxInFlight, j.Handling = redisdelay.Broadcast, each, 5, 5*time.Millisecond
			if spawned%2 == 0 { // the others are killed
				j.Lives = churn/40 + rand.N(churn/20)
			}
		}), s.history)
	}
	var guests []*process
	for range processes {
		guests = append(guests, start())
	}
	most := 0
	s.until("the guests are there", quiet, func() bool {
		most = len(s.groups())
		return most > 1+each
	})
	for begin := time.Now(); time.Since(begin) < churn; {
		<-time.After(churn / 40)
		i := rand.IntN(len(guests))
		guests[i].kill() // unless it has closed
		guests[i] = start()
		most = max(most, len(s.groups()))
	}
	stop(guests)
	last, used := time.Now(), s.memory()
	publisher.kill()
	s.drainedBy("g")
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Empty(c, s.leftOfGuests()) }, gone, 50*time.Millisecond)
	took := time.Since(last)
	t.Logf("%d processes of %d subscribers; at most %d groups at once; all were forgotten %s after the last; %d MB in Redis before, %d MB after",
		spawned, each, most, took.Round(time.Millisecond), used>>20, s.memory()>>20)
	steady.kill()
	report := s.history.Check([]string{"g"}, s.bodies(), nil)
	t.Log(report)
	assert.Empty(t, report.Failures())
	s.consistent()
}

// groups lists the topic's groups.
func (s *scene) groups() []string {
	s.T.Helper()
	names, err := s.Client.SMembers(context.Background(), s.Key("groups")).Result()
	require.NoError(s.T, err)
	return names
}

// drainedBy waits until a group has nothing left.
func (s *scene) drainedBy(group string) {
	s.T.Helper()
	control, err := redisdelay.NewControl(redisdelay.ControlConfig{Client: s.Client})
	require.NoError(s.T, err)
	ctx, cancel := context.WithTimeout(context.Background(), quiet)
	defer cancel()
	require.NoError(s.T, control.Drain(ctx, s.Topic, group, nil))
}

// leftOfGuests lists the keys that the topic would not have if only the group g had ever
// been there.
func (s *scene) leftOfGuests() []string {
	s.T.Helper()
	keys, err := s.Keys(context.Background())
	require.NoError(s.T, err)
	return slices.DeleteFunc(keys, func(key string) bool {
		kind := fixture.Kind(key)
		return strings.HasSuffix(kind, ":g") || kind == "publishers" || kind == "partitions" ||
			kind == "groups" && slices.Equal(s.Client.SMembers(context.Background(), key).Val(), []string{"g"})
	})
}
