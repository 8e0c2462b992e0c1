package relay_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// toStreams makes a relay move messages to streams that a client reaches.
func toStreams(client redis.UniversalClient) func(*relay.Config) {
	return func(c *relay.Config) {
		c.Target, c.Streams = nil, &redisstream.PublisherConfig{Client: client}
	}
}

// read reads the stream of the topic with stock redisstream.
func (s *scene) read(count int) (got []*message.Message) {
	s.T.Helper()
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: s.dial(), ConsumerGroup: watermill.NewShortUUID(), OldestId: "0", DisableIndefiniteInitialBlock: true,
	}, nil)
	require.NoError(s.T, err)
	messages, err := subscriber.Subscribe(context.Background(), s.Topic)
	require.NoError(s.T, err)
	for range count {
		msg := s.Next(messages)
		msg.Ack()
		got = append(got, msg)
	}
	require.NoError(s.T, subscriber.Close())
	return got
}

// dial returns another client of the same server.
func (s *scene) dial() redis.UniversalClient { return redistest.Client(s.T) }

// TestAFullBatchIsMovedInCallsOfFewArguments: the scene fails on a call with more than hosted servers take.
func TestAFullBatchIsMovedInCallsOfFewArguments(t *testing.T) {
	t.Parallel()
	const count = 500
	s := newScene(t)
	var call []*message.Message
	for i := range count {
		call = append(call, fixture.Delayed(fmt.Sprint(i), time.Millisecond))
	}
	require.NoError(t, s.Publisher().Publish(s.Topic, call...))
	s.run(toStreams(s.Client), func(c *relay.Config) { c.BatchSize = count })
	for i, msg := range s.read(count) {
		require.Equal(t, fmt.Sprint(i), msg.UUID)
	}
}

func TestARelayMovesOrPublishesToStreams(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]struct {
		client    func(s *scene) redis.UniversalClient
		inOneStep bool
	}{
		"in one step": {func(s *scene) redis.UniversalClient { return s.Client }, true},
		"published":   {(*scene).dial, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			var call []*message.Message
			for i := range 150 {
				msg := fixture.Delayed(fmt.Sprint(i), 10*time.Millisecond)
				msg.Payload = []byte{0, 255, byte(i)}
				msg.Metadata.Set("k", "v")
				call = append(call, msg)
			}
			empty := fixture.Delayed("empty", 15*time.Millisecond)
			require.NoError(t, s.Publisher().Publish(s.Topic, append(call, empty)...))
			var scripts sync.Map
			s.run(toStreams(form.client(s)), func(c *relay.Config) {
				c.Observer.Called = func(call observe.Called) { scripts.Store(call.Script, true) }
			})
			got := s.read(151)
			for i, msg := range got[:150] {
				require.Equal(t, fmt.Sprint(i), msg.UUID)
				require.Equal(t, []byte{0, 255, byte(i)}, []byte(msg.Payload))
				require.Equal(t, "v", msg.Metadata.Get("k"))
				require.Len(t, msg.Metadata, 3)
			}
			assert.Equal(t, "empty", got[150].UUID)
			require.NoError(t, s.publisher().Publish(s.Topic, got[0]), "honoured, so it is due")
			assert.Len(t, s.target.uuids(), 1)
			s.until("nothing is left", func() bool { return s.Client.Exists(t.Context(), s.Key("messages")).Val() == 0 })
			_, acked := scripts.Load("ack")
			assert.Equal(t, !form.inOneStep, acked, "a message that is moved needs no ack")
			_, moved := scripts.Load("relay")
			assert.Equal(t, form.inOneStep, moved)
			s.until("the log tells the form", func() bool {
				return s.Log.Count(fmt.Sprint("in_one_step:", form.inOneStep)) == 1
			})
		})
	}
}

// marshalling calls a function before it encodes a message.
type marshalling struct {
	redisstream.DefaultMarshallerUnmarshaller
	before func()
}

func (m marshalling) Marshal(topic string, msg *message.Message) (map[string]any, error) {
	m.before()
	return m.DefaultMarshallerUnmarshaller.Marshal(topic, msg)
}

// TestAMessageThatAnotherConsumerHasClaimedIsNotMoved, and that is reported. The other one dies, so the relay moves it later.
func TestAMessageThatAnotherConsumerHasClaimedIsNotMoved(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.due("a")
	unack := s.Key("unack:relay")
	var claimed atomic.Bool
	claim := func() { // what a claim of another consumer does
		if claimed.Swap(true) {
			return
		}
		id := s.Client.ZRange(t.Context(), unack, 0, -1).Val()[0]
		assert.NoError(t, s.Client.HSet(t.Context(), s.Key("attempts:relay"), id, "2/0/1").Err())
	}
	settled := make(chan observe.Settled, 10)
	s.run(func(c *relay.Config) {
		c.Target, c.Streams = nil, &redisstream.PublisherConfig{Client: s.Client, Marshaller: marshalling{before: claim}}
		c.Observer.Settled = func(e observe.Settled) { settled <- e }
	})
	stale := <-settled
	assert.True(t, stale.Stale)
	assert.Zero(t, s.Client.XLen(t.Context(), s.Topic).Val())
	require.NoError(t, s.Client.ZAddXX(t.Context(), unack, redis.Z{Score: 1, Member: stale.ID}).Err())
	again := <-settled
	assert.False(t, again.Stale)
	assert.Equal(t, int64(3), again.Token)
	assert.Equal(t, int64(1), s.Client.XLen(t.Context(), s.Topic).Val())
}

func TestAStreamIsTrimmedLikeRedisstreamDoes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.due(numbers(1000)...)
	s.run(func(c *relay.Config) {
		c.Target = nil
		c.Streams = &redisstream.PublisherConfig{Client: s.Client, DefaultMaxlen: 1, Maxlens: map[string]int64{s.Topic: 100}}
	})
	s.until("all are moved", func() bool { return s.Client.Exists(t.Context(), s.Key("messages")).Val() == 0 })
	assert.InDelta(t, 150, s.Client.XLen(t.Context(), s.Topic).Val(), 60)
}

// TestAMessageThatFitsInNoStreamIsDeadLettered: redisstream reserves a name in metadata. Other messages of its batch are
// moved; a target would get them twice.
func TestAMessageThatFitsInNoStreamIsDeadLettered(t *testing.T) {
	t.Parallel()
	for _, inOneStep := range []bool{true, false} {
		t.Run(fmt.Sprint("in one step: ", inOneStep), func(t *testing.T) {
			s := newScene(t)
			bad := fixture.Delayed("bad", time.Millisecond)
			bad.Metadata.Set(redisstream.UUIDHeaderKey, "x")
			call, client := []*message.Message{bad}, s.dial()
			if inOneStep {
				call, client = append(call, fixture.Delayed("a", time.Millisecond)), s.Client
			}
			require.NoError(t, s.Publisher().Publish(s.Topic, call...))
			s.run(toStreams(client))
			reason := dead.Messages(s.Scene, 1)[0].Reason
			assert.Contains(t, reason, "marshal for the stream: ")
			assert.Contains(t, reason, "is reserved by watermill")
			if inOneStep {
				assert.Equal(t, "a", s.read(1)[0].UUID)
			}
		})
	}
}

// TestAMarshallerGetsACopy, as a target does.
func TestAMarshallerGetsACopy(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.due("a")
	m := &changing{}
	s.run(func(c *relay.Config) {
		c.Target, c.Streams = nil, &redisstream.PublisherConfig{Client: s.Client, Marshaller: m}
	})
	assert.Equal(t, "yes", s.read(1)[0].Metadata.Get("changed"))
	assert.False(t, m.delivered.Load(), "it does not find the relay's delivery")
}

// changing changes what it marshals.
type changing struct {
	redisstream.DefaultMarshallerUnmarshaller
	delivered atomic.Bool
}

func (c *changing) Marshal(topic string, msg *message.Message) (map[string]any, error) {
	_, delivered := redisdelay.DeliveryFromContext(msg.Context())
	c.delivered.Store(delivered)
	msg.Metadata.Set("changed", "yes")
	return c.DefaultMarshallerUnmarshaller.Marshal(topic, msg)
}

// TestAClusterBehindOneAddressGetsMessagesAtLeastOnce: only Redis can tell that there is one.
func TestAClusterBehindOneAddressGetsMessagesAtLeastOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	client := s.dial()
	client.AddHook(hiding{stream: s.Topic})
	s.due(numbers(20)...)
	r := s.relay(toStreams(client), func(c *relay.Config) { c.Client = client })
	assert.True(t, r.InOneStep(s.Topic))
	s.start(r)
	got := s.read(20)
	assert.Equal(t, "19", got[19].UUID)
	assert.False(t, r.InOneStep(s.Topic))
	s.until("nothing is left", func() bool { return s.Client.Exists(t.Context(), s.Key("messages")).Val() == 0 })
	assert.EqualValues(t, 20, s.Client.XLen(t.Context(), s.Topic).Val())
	assert.Equal(t, 1, s.Log.Count("in another slot"))
}

// hiding rejects relay.lua as a proxy in front of a Cluster does.
type hiding struct {
	redistest.Hook
	stream string
}

func (h hiding) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 13 && args[13] == h.stream { // its last key
			cmd.SetErr(crossSlot{})
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// crossSlot is an answer of Redis.
type crossSlot struct{}

func (crossSlot) Error() string { return "CROSSSLOT Keys in request don't hash to the same slot" }
func (crossSlot) RedisError()   {}

func TestStreamsInTheSameSlotGetMessagesInOneStep(t *testing.T) {
	t.Parallel()
	client := redistest.SharedCluster(t).Client(t)
	r, err := relay.New(relay.Config{Client: client, Streams: &redisstream.PublisherConfig{Client: client}, Topics: []string{"any"}}, nil)
	require.NoError(t, err)
	topic, run := "", watermill.NewShortUUID()
	for n := 0; ; n++ { // one in 16,384
		if topic = fmt.Sprint(t.Name(), run, n); r.InOneStep(topic) {
			break
		}
	}
	slot := client.ClusterKeySlot(t.Context(), topic).Val()
	assert.Equal(t, slot, client.ClusterKeySlot(t.Context(), "{redisdelay:"+topic+":0}").Val())
	for name, of := range map[string]string{"in one step": topic, "published": topic + "/other"} {
		t.Run(name, func(t *testing.T) {
			s := &scene{fixture.NewWith(t, client), &target{}}
			s.Topic = of
			s.due("a", "b")
			s.run(toStreams(client))
			s.until("they are moved", func() bool { return s.Client.XLen(t.Context(), s.Topic).Val() == 2 })
			assert.Equal(t, name == "in one step", r.InOneStep(s.Topic))
		})
	}
}

func TestBadConfigsOfARelayAreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	streams := &redisstream.PublisherConfig{Client: s.Client}
	for field, config := range map[string]relay.Config{
		"Client":        {Target: s.target},
		"Target":        {Client: s.Client},
		"Streams":       {Client: s.Client, Streams: &redisstream.PublisherConfig{}},
		"ConsumerGroup": {Client: s.Client, Target: s.target, ConsumerGroup: redisdelay.Broadcast},
		"BatchSize":     {Client: s.Client, Target: s.target, BatchSize: 501},
		"MaxFailures":   {Client: s.Client, Target: s.target, MaxFailures: -1},
		"Topics":        {Client: s.Client, Target: s.target},
		"LeaseDuration": {Client: s.Client, Target: s.target, LeaseDuration: 5},
	} {
		_, err := relay.New(config, nil)
		var bad *redisdelay.ConfigError
		require.ErrorAs(t, err, &bad, field)
		assert.Equal(t, field, bad.Field)
	}
	_, err := relay.New(relay.Config{Client: s.Client, Target: s.target, Streams: streams}, nil)
	require.Error(t, err)
	_, err = relay.New(relay.Config{Client: s.Client, Target: s.target, Topics: []string{"a", "b", "a"}}, nil)
	require.ErrorContains(t, err, `Topics has "a" twice`)
	_, err = relay.New(relay.Config{Client: s.Client, Target: s.target, Topics: []string{""}}, nil)
	require.ErrorContains(t, err, "Topics has an empty topic")
}
