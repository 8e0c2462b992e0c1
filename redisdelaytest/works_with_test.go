package redisdelaytest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// remind is a command.
type remind struct{ Who string }

func TestCommandsAreDeliveredOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := redisdelaytest.New(t), newDiary()
		topic := func(name string) string { return "commands." + name }
		marshaler := cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
		bus, err := cqrs.NewCommandBusWithConfig(publisher(t, r), cqrs.CommandBusConfig{
			GeneratePublishTopic: func(p cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return topic(p.CommandName), nil },
			Marshaler:            marshaler,
		})
		require.NoError(t, err)
		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		require.NoError(t, err)
		processor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
			GenerateSubscribeTopic: func(p cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
				return topic(p.CommandName), nil
			},
			SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return redisdelay.NewSubscriber(r.SubscriberConfig("commands"), nil)
			},
			Marshaler: marshaler,
		})
		require.NoError(t, err)
		require.NoError(t, processor.AddHandlers(cqrs.NewCommandHandler("remind", func(_ context.Context, c *remind) error {
			d.add(c.Who)
			return nil
		})))
		run(t, router)

		ctx := delay.WithContext(t.Context(), delay.For(7*24*time.Hour))
		require.NoError(t, bus.Send(ctx, &remind{"anna"}))
		r.Advance(7 * 24 * time.Hour)
		assert.Equal(t, []string{"168h0m0s anna"}, d.lines())
	})
}

func TestPausesAndLimitsFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := redisdelaytest.New(t), newDiary()
		p := publisher(t, r)
		config := r.SubscriberConfig("g")
		config.GroupLimits = redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: 1, Per: time.Hour}}
		handle(t, config, "work", func(msg *message.Message) error {
			d.add(string(msg.Payload))
			return nil
		})
		control, err := redisdelay.NewControl(redisdelay.ControlConfig{Client: r.Client()})
		require.NoError(t, err)
		require.NoError(t, control.PauseGroup(t.Context(), "work", "g", redisdelay.Pause{For: 24 * time.Hour}))
		require.NoError(t, p.Publish("work", later("a", time.Hour), later("b", 2*time.Hour)))
		r.Advance(23 * time.Hour)
		assert.Empty(t, d.lines())
		r.Advance(2 * time.Hour)
		assert.Equal(t, []string{"24h0m0s a", "25h0m0s b"}, d.lines())
	})
}

func TestASubscriptionContinuesOnceItsGroupIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := redisdelaytest.New(t), newDiary()
		p := publisher(t, r)
		handle(t, r.SubscriberConfig("g"), "work", func(msg *message.Message) error {
			d.add(string(msg.Payload))
			return nil
		})
		control, err := redisdelay.NewControl(redisdelay.ControlConfig{Client: r.Client()})
		require.NoError(t, err)
		_, err = control.RetireGroup(t.Context(), "work", "g", redisdelay.RetireOptions{Force: true})
		require.NoError(t, err)
		require.NoError(t, p.Publish("work", later("a", time.Minute)))
		r.Advance(time.Hour)
		assert.Empty(t, d.lines())
		require.NoError(t, control.RestoreGroup(t.Context(), "work", "g"))
		r.Advance(time.Minute)
		assert.Equal(t, []string{"1h0m0s a"}, d.lines())
	})
}

func TestARelayMovesMessagesOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisdelaytest.New(t)
		re, err := relay.New(relay.Config{
			Client: r.Client(), Streams: &redisstream.PublisherConfig{Client: r.Client()}, Topics: []string{"work"},
			PollInterval: 365 * 24 * time.Hour, PingInterval: 365 * 24 * time.Hour, // else a month takes seconds
		}, nil)
		require.NoError(t, err)
		assert.True(t, re.InOneStep("work"))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- re.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			assert.NoError(t, <-ended)
		})
		r.Wait() // until the group of the relay is there
		require.NoError(t, publisher(t, r).Publish("work", later("a", 30*24*time.Hour)))
		r.Advance(30*24*time.Hour - time.Millisecond)
		assert.Zero(t, r.Client().XLen(t.Context(), "work").Val())
		r.Advance(time.Millisecond)
		assert.EqualValues(t, 1, r.Client().XLen(t.Context(), "work").Val())
	})
}

func TestBroadcastSubscribersStayRegisteredForAMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := redisdelaytest.New(t), newDiary()
		p := publisher(t, r)
		for range 2 {
			handle(t, r.SubscriberConfig(redisdelay.Broadcast), "news", func(msg *message.Message) error {
				d.add(string(msg.Payload))
				return nil
			})
		}
		require.NoError(t, p.Publish("news", later("a", 30*24*time.Hour)))
		r.Advance(30 * 24 * time.Hour)
		assert.Equal(t, []string{"720h0m0s a", "720h0m0s a"}, d.lines())
	})
}

func TestOptionsMakeAClientForOtherCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := redisdelaytest.New(t), newDiary()
		client := redis.NewClient(r.Options())
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		p, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, p.Close()) })
		handle(t, redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "g"}, "work", func(msg *message.Message) error {
			d.add(string(msg.Payload))
			return nil
		})
		require.NoError(t, p.Publish("work", later("a", time.Hour)))
		assert.Len(t, r.Undelivered("work"), 1)
		r.Advance(time.Hour - time.Millisecond)
		assert.Empty(t, d.lines())
		r.Advance(2 * time.Millisecond)
		assert.Len(t, d.lines(), 1)
	})
}

func TestPendingMayBeCalledInACleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisdelaytest.New(t)
		t.Cleanup(func() { assert.Len(t, r.Undelivered("work"), 1) })
		require.NoError(t, publisher(t, r).Publish("work", later("a", time.Hour)))
	})
}

func TestNewMustBeCalledWithinSynctest(t *testing.T) {
	tb := &failing{TB: t}
	assert.PanicsWithValue(t, errFailed, func() { redisdelaytest.New(tb) })
	assert.Equal(t, "redisdelaytest: New must be called within synctest.Test", tb.why)
}

var errFailed = errors.New("failed")

// failing is a test that notes why it fails.
type failing struct {
	testing.TB
	why any
}

func (f *failing) Helper() {}

func (f *failing) Fatal(args ...any) {
	f.why = args[0]
	panic(errFailed)
}
