package relay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// TestTopicsAreFoundWhileTheRelayRuns, and those without its group are left alone.
func TestTopicsAreFoundWhileTheRelayRuns(t *testing.T) {
	s := &scene{fixture.NewOn(t, redistest.New(t)), &target{}}
	before, later, foreign := s.topic("/before"), s.topic("/later"), s.topic("/foreign")
	before.due("1")
	theirs := foreign.Subscribe()
	foreign.Publish("theirs")
	foreign.Expect(theirs, "theirs")
	s.run(func(c *relay.Config) { c.Topics, c.DiscoveryInterval = nil, 100*time.Millisecond })
	s.gets("1")
	later.due("2")
	s.gets("1", "2")
	assert.False(t, foreign.Client.SIsMember(t.Context(), foreign.Key("groups"), "relay").Val())

	foreign.due("3")
	s.gets("1", "2", "3")
}

func (s *scene) topic(suffix string) *scene { return &scene{s.Beside(suffix), s.target} }

// TestATopicThatCannotBeReadHidesNoOther, nor forever: somebody may mend it.
func TestATopicThatCannotBeReadHidesNoOther(t *testing.T) {
	s := &scene{fixture.NewOn(t, redistest.New(t)), &target{}}
	broken, good := s.topic("/1"), s.topic("/2") // they are looked at in this order
	broken.due("1")
	good.due("2")
	require.NoError(t, s.Client.Rename(t.Context(), broken.Key("groups"), broken.Key("aside")).Err())
	require.NoError(t, s.Client.Set(t.Context(), broken.Key("groups"), "of another program", 0).Err())
	s.run(func(c *relay.Config) { c.Topics, c.DiscoveryInterval = nil, 100*time.Millisecond })
	s.gets("2")
	require.NoError(t, s.Client.Rename(t.Context(), broken.Key("aside"), broken.Key("groups")).Err())
	s.gets("2", "1")
	assert.Equal(t, 1, s.Log.Count("Could not read a topic"))
}

func TestARelayStartsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Durable...)
	for name, change := range map[string]func(*relay.Config){
		"topics are known":   func(*relay.Config) {},
		"topics are unknown": func(c *relay.Config) { c.Topics, c.DiscoveryInterval = nil, 100*time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			s := &scene{fixture.NewOn(t, server), &target{}}
			s.due("m")
			require.NoError(t, server.Down())
			s.run(change)
			s.until("the relay has tried", func() bool { return s.Log.Count("trying again") == 1 })
			server.Up()
			require.NoError(t, server.Wait())
			s.until("the message is there", func() bool { return len(s.target.uuids()) > 0 })
			assert.Equal(t, 1, s.Log.Count("trying again"))
		})
	}
}

// TestAnIdleRelayIsQuiet: it looks for topics with one call, and polls.
func TestAnIdleRelayIsQuiet(t *testing.T) {
	t.Parallel()
	s := &scene{fixture.NewOn(t, redistest.New(t)), &target{}}
	s.due("m")
	for n := range 5 {
		s.topic("/foreign" + string(rune('a'+n))).Publish("theirs")
	}
	s.run(func(c *relay.Config) { c.Topics = nil })
	s.gets("m")
	calls := func() int64 {
		info := s.Client.InfoMap(t.Context(), "stats").Item("Stats", "total_commands_processed")
		n := int64(0)
		for _, c := range info {
			n = 10*n + int64(c-'0')
		}
		return n
	}
	<-time.After(4 * time.Second) // until what is not ours is looked at seldom
	from := calls()
	<-time.After(3 * time.Second)
	assert.Less(t, calls()-from, int64(60), "commands in three seconds")
}
