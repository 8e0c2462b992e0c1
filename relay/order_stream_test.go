package relay_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

const (
	parts     = 3   // partitions
	processes = 3   // relays at once
	published = 240 // messages
)

// TestAStreamKeepsTheOrderOfEachKey, by due time and then by publishing, from several relays, while some calls fail or lose their
// replies, and relays start and stop.
func TestAStreamKeepsTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]struct {
		config func(s *scene, c *relay.Config)
		once   func(uuids []string) []string // what a stream may have twice
	}{
		"in one step": {(*scene).unsteadySteps, func(uuids []string) []string { return uuids }},
		"published":   {(*scene).unsteadyTarget, slices.Compact[[]string]},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			wanted := s.scattered()
			start := func() (stop func()) {
				return s.run(func(c *relay.Config) { c.MaxFailures, c.BatchSize = 1000, 5 }, func(c *relay.Config) { form.config(s, c) })
			}
			leaves := start()
			for range processes - 1 {
				start()
			}
			s.until("a part is in the stream", func() bool { return s.Client.XLen(context.Background(), s.Topic).Val() > published/4 })
			leaves()
			start()
			s.until("nothing is left", func() bool { return len(s.keysOf("messages")) == 0 })
			got := s.streamed()
			for key, uuids := range got {
				got[key] = form.once(uuids)
			}
			assert.Equal(t, wanted, got)
		})
	}
}

// scattered publishes messages of some ordering keys, due in any order, in several partitions. It returns the UUIDs of each
// key by due time, and by publishing if that is the same.
func (s *scene) scattered() (wanted map[string][]string) {
	s.T.Helper()
	publisher := s.Publisher(fixture.Partitions(parts))
	keyOf := map[string]string{}
	for n := 0; n < published; {
		var call []*message.Message
		for range published / 8 {
			msg := fixture.Delayed(fmt.Sprintf("%03d", n), time.Millisecond+time.Duration(rand.IntN(5))*100*time.Millisecond)
			keyOf[msg.UUID] = fmt.Sprint("key ", rand.IntN(8))
			redisdelay.SetOrderingKey(msg, keyOf[msg.UUID])
			call, n = append(call, msg), n+1
		}
		require.NoError(s.T, publisher.Publish(s.Topic, call...))
	}
	due, alike := s.dues(), 0
	require.Len(s.T, due, published, "without a group all wait")
	wanted = map[string][]string{}
	for uuid := range due {
		wanted[keyOf[uuid]] = append(wanted[keyOf[uuid]], uuid)
	}
	for _, uuids := range wanted {
		slices.SortFunc(uuids, func(a, b string) int { return cmp.Or(cmp.Compare(due[a], due[b]), cmp.Compare(a, b)) })
		for i := range uuids[1:] {
			if due[uuids[i]] == due[uuids[i+1]] {
				alike++
			}
		}
	}
	require.NotZero(s.T, alike, "some are due in the same millisecond")
	return wanted
}

// keysOf are the keys of a kind in all partitions.
func (s *scene) keysOf(kind string) []string {
	s.T.Helper()
	keys, err := s.Keys(context.Background())
	require.NoError(s.T, err)
	return slices.DeleteFunc(keys, func(key string) bool { return fixture.Kind(key) != kind })
}

// dues are the due times of what is scheduled, by UUID.
func (s *scene) dues() map[string]float64 {
	s.T.Helper()
	due, scheduled := map[string]float64{}, s.keysOf("scheduled")
	require.Len(s.T, scheduled, parts)
	for _, key := range scheduled {
		for _, z := range s.Client.ZRangeWithScores(s.T.Context(), key, 0, -1).Val() {
			body := s.Client.HGet(s.T.Context(), strings.TrimSuffix(key, "scheduled")+"messages", z.Member.(string)).Val()
			msg, err := redisdelay.DefaultMarshaler{}.Unmarshal(s.Topic, []byte(body))
			require.NoError(s.T, err)
			due[msg.UUID] = z.Score
		}
	}
	return due
}

// streamed are the UUIDs of each ordering key in the order of the stream.
func (s *scene) streamed() map[string][]string {
	s.T.Helper()
	got := map[string][]string{}
	for _, entry := range s.Client.XRange(s.T.Context(), s.Topic, "-", "+").Val() {
		msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(entry.Values)
		require.NoError(s.T, err)
		key := msg.Metadata.Get(redisdelay.OrderingKeyMetadata)
		got[key] = append(got[key], msg.UUID)
	}
	return got
}

// unsteadySteps makes a relay move messages to the stream with a client of its own, whose calls fail now and then.
func (s *scene) unsteadySteps(c *relay.Config) {
	client := s.dial()
	client.AddHook(unsteady{stream: s.Topic})
	c.Client = client
	toStreams(client)(c)
}

// unsteadyTarget makes a relay publish to the stream, which fails now and then.
func (s *scene) unsteadyTarget(c *relay.Config) {
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: s.dial()}, nil)
	require.NoError(s.T, err)
	c.Client, c.Target = s.dial(), unsteadyPublisher{publisher}
}

var errUnsteady = errors.New("connection reset")

// unsteadily makes a call, one in ten not, and loses the answer of one in ten.
func unsteadily(call func() error) error {
	fate := rand.IntN(10)
	if fate == 0 {
		return errUnsteady
	}
	if err := call(); err != nil || fate > 1 {
		return err
	}
	return errUnsteady
}

// unsteady does that with the calls of relay.lua.
type unsteady struct {
	redistest.Hook
	stream string
}

func (u unsteady) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) <= 13 || args[13] != u.stream { // its last key
			return next(ctx, cmd)
		}
		err := unsteadily(func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

// unsteadyPublisher does that with the calls of a publisher.
type unsteadyPublisher struct{ message.Publisher }

func (p unsteadyPublisher) Publish(topic string, messages ...*message.Message) error {
	return unsteadily(func() error { return p.Publisher.Publish(topic, messages...) })
}
