package languages

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var full = flag.Bool("full", false, "run the full form of the tests that kill")

// healing is how long programs may need to go on after a kill.
const healing = 60 * time.Second

// load is how much happens in a test that kills.
type load struct {
	count  int // messages
	deaths int
	pause  time.Duration // between bursts, so that messages are published as long as processes die
}

// loadOf is the short or the full form. The full one has the machine for itself.
func loadOf(t *testing.T) load {
	t.Helper()
	l := load{count: 50_000, deaths: 100}
	if !*full {
		t.Parallel()
		l = load{count: 1500, deaths: 6}
	}
	const life = 400 * time.Millisecond // from one death to the next, about
	l.pause = time.Duration(l.deaths) * life * burst / time.Duration(l.count)
	return l
}

// stage is a durable server and a topic with a name that has to be escaped.
func stage(t *testing.T, partitions int) (*fixture.Scene, *redistest.Server) {
	t.Helper()
	server := redistest.New(t, redistest.Durable...)
	s := fixture.NewOn(t, server)
	s.Topic = "заказы: 50% {off}"
	require.NoError(t, s.Publisher(fixture.Partitions(partitions)).Publish(s.Topic, fixture.Keyed("first", "first", time.Hour)))
	_, err := s.Publisher().Cancel(t.Context(), s.Topic, "first")
	require.NoError(t, err)
	return s, server
}

// worker makes a program in Go.
func (c *crowd) worker(l load, topic string, does task) func() *exec.Cmd {
	return func() *exec.Cmd {
		first, last := c.story.place()
		encoded, err := json.Marshal(job{
			Does: does, Addr: c.server.Addr, Topic: topic, First: first, Count: l.count, Last: last, Pause: l.pause,
		})
		require.NoError(c.t, err)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), workerEnv+"="+string(encoded))
		return cmd
	}
}

// TestPythonAddsAndGoConsumesWhileAllAreKilled: a program in Python adds entries to the inbox by XADD. It, the processes that store
// and those that consume are killed, sometimes all at once, and so is Redis.
func TestPythonAddsAndGoConsumesWhileAllAreKilled(t *testing.T) {
	l, interpreter := loadOf(t), python.interpreter(t)
	s, server := stage(t, 3)
	c := &crowd{t: t, server: server, story: newStory()}
	adds := func() *exec.Cmd {
		first, last := c.story.place()
		return exec.Command(interpreter, "testdata/add.py", s.Topic, strconv.Itoa(first), strconv.Itoa(l.count), last.ID,
			strconv.FormatInt(l.pause.Milliseconds(), 10))
	}
	store, consume := c.worker(l, s.Topic, stores), c.worker(l, s.Topic, consumes)
	c.programs = []func() *exec.Cmd{adds, store, store, consume, consume}
	c.live(l, func(death int) {
		if death%10 == 3 {
			require.NoError(t, server.KillFor(300*time.Millisecond))
		}
	})
	c.judge(l.count)
	s.Settled()
	added, err := s.Client.XInfoStream(t.Context(), entries).Result()
	require.NoError(t, err)
	assert.EqualValues(t, l.count, added.EntriesAdded, "the program in Python has added each once")
	assert.Zero(t, added.Length)
	assert.Zero(t, s.Client.XLen(t.Context(), refused).Val())
}

// TestGoPublishesAndPythonReadsAStreamWhileAllAreKilled: relays move to a stream what Go publishes, and programs in Python read it
// by XREADGROUP. Redis lives on: killed while it writes, it may have an entry twice, which docs/use/relay.md says.
func TestGoPublishesAndPythonReadsAStreamWhileAllAreKilled(t *testing.T) {
	l, interpreter := loadOf(t), python.interpreter(t)
	s, server := stage(t, 3)
	c := &crowd{t: t, server: server, story: newStory()}
	read := func() *exec.Cmd { return exec.Command(interpreter, "testdata/read.py", s.Topic, readers) }
	move := c.worker(l, s.Topic, relays)
	c.programs = []func() *exec.Cmd{c.worker(l, s.Topic, publishes), move, move, read, read}
	c.live(l, func(int) {})
	c.judge(l.count)
	require.Eventually(t, func() bool {
		return s.Client.XPending(t.Context(), s.Topic, readers).Val().Count == 0
	}, fixture.Soon, 5*time.Millisecond, "the last are acknowledged")
	assert.EqualValues(t, l.count, s.Client.XLen(t.Context(), s.Topic).Val(), "each is in the stream once")
	assert.NotContains(t, s.Kinds(), "messages")
}
