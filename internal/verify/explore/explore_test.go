package explore

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	exploreFull  = flag.Bool("explore", false, "explore the scripts in full, which takes minutes")
	exploreLimit = flag.Duration("explore.limit", time.Minute, "how long to explore one universe")
)

const mostStates = 400_000 // of one universe

func TestMain(m *testing.M) { redistest.Main(m) }

// TestExplore visits all states of small universes with the real scripts.
func TestExplore(t *testing.T) {
	client := redistest.New(t).Client(t)
	for _, u := range Universes() {
		t.Run(u.Name, func(t *testing.T) {
			options := Options{States: 40, Limit: *exploreLimit, Verify: 20}
			if *exploreFull {
				options.States = mostStates
			}
			x := New(client, Sources(), u, options)
			require.NoError(t, x.Run(t.Context()))
			t.Log(x.Figures())
			for _, violation := range x.Violations() {
				t.Error(violation)
			}
		})
	}
}

// TestATimedOutRunIsReportedAsIncomplete, even if the time ends between two levels.
func TestATimedOutRunIsReportedAsIncomplete(t *testing.T) {
	x := New(redistest.Shared(t).Client(t), Sources(), universeNamed("one message"), Options{States: mostStates})
	require.NoError(t, x.Run(t.Context()))
	require.Contains(t, x.Figures(), "(NOT all)")
}

// newScene returns a topic with one partition, for one test only, and that partition as a scene of Redis.
func newScene(t *testing.T, server *redistest.Server) (*scripttest.Scene, *queue.Topic) {
	t.Helper()
	client := server.Client(t)
	store := queue.NewStore(client, "test", observe.Observer{})
	topic := store.Topic(fmt.Sprintf("%s/%d", t.Name(), rand.Uint64()))
	return &scripttest.Scene{T: t, Client: client, Partition: topic.Partition(0).Partition}, topic
}
