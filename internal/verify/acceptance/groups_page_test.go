package acceptance

import (
	"context"
	"log"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// The code of docs/use/groups.md, as the test uses it. The page shows calls, which functions hold here.

func aControl(rdb redis.UniversalClient) (*redisdelay.Control, error) {
	// recipe: a control
	control, err := redisdelay.NewControl(redisdelay.ControlConfig{Client: rdb})
	// end of recipe
	return control, err
}

func pauseAndResume(ctx context.Context, control *redisdelay.Control) error {
	// recipe: pause and resume
	if err := control.PauseGroup(ctx, "orders.close", "billing", redisdelay.Pause{
		For: time.Hour, By: "anna", Reason: "migration",
	}); err != nil {
		return err
	}
	// … migrate …
	return control.ResumeGroup(ctx, "orders.close", "billing")
	// end of recipe
}

func limitedGroup(rdb redis.UniversalClient, logger watermill.LoggerAdapter) (*redisdelay.Subscriber, error) {
	// recipe: limits
	sub, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: rdb, ConsumerGroup: "billing",
		GroupLimits: redisdelay.GroupLimits{
			MaxInFlight: 5,                                         // of all consumers together
			Rate:        redisdelay.Rate{Messages: 100, Burst: 10}, // per second
		},
	}, logger)
	// end of recipe
	return sub, err
}

func unlimit(ctx context.Context, control *redisdelay.Control) error {
	// recipe: no limits
	err := control.LimitGroup(ctx, "orders.close", "billing", redisdelay.GroupLimits{}) // remove all limits
	// end of recipe
	return err
}

func drainTopic(ctx context.Context, control *redisdelay.Control) error {
	// recipe: drain
	err := control.DrainGroup(ctx, "orders.close", redisdelay.AllGroups, func(left redisdelay.DrainProgress) {
		log.Println(left.Due, left.Waiting, left.InDelivery)
	})
	// end of recipe
	return err
}

func retireGroup(ctx context.Context, control *redisdelay.Control) (int, error) {
	// recipe: retire
	freed, err := control.RetireGroup(ctx, "orders.close", "billing", redisdelay.RetireOptions{})
	// end of recipe
	return freed, err
}

func expiringGroup(rdb redis.UniversalClient, logger watermill.LoggerAdapter) (*redisdelay.Subscriber, error) {
	// recipe: a group that ends by itself
	sub, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: rdb, ConsumerGroup: "preview-1234", GroupExpiry: time.Hour,
	}, logger)
	// end of recipe
	return sub, err
}

func broadcastGroup(rdb redis.UniversalClient, logger watermill.LoggerAdapter) (*redisdelay.Subscriber, error) {
	// recipe: broadcast
	sub, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: rdb, ConsumerGroup: redisdelay.Broadcast,
	}, logger)
	// end of recipe
	return sub, err
}

// TestTheLifecycleOfAGroup is that of docs/use/groups.md.
func TestTheLifecycleOfAGroup(t *testing.T) {
	s := fixture.NewOn(t, redistest.New(t))
	s.Topic = "orders.close"
	control, err := aControl(s.Client)
	require.NoError(t, err)
	ctx := t.Context()
	s.Publish("a")
	require.ErrorIs(t, pauseAndResume(ctx, control), redisdelay.ErrGroupNotFound)
	require.NoError(t, s.Subscriber(group("billing")).SubscribeInitialize(s.Topic))
	require.NoError(t, pauseAndResume(ctx, control))

	limited, err := limitedGroup(s.Client, s.Log)
	require.NoError(t, err)
	messages, err := limited.Subscribe(ctx, s.Topic)
	require.NoError(t, err)
	s.Expect(messages, "a")
	require.NoError(t, unlimit(ctx, control))
	require.NoError(t, drainTopic(ctx, control))
	require.NoError(t, limited.Close())
	freed, err := retireGroup(ctx, control)
	require.NoError(t, err)
	assert.Zero(t, freed)

	for group, newSubscriber := range map[string]func(redis.UniversalClient, watermill.LoggerAdapter) (*redisdelay.Subscriber, error){
		"preview-1234": expiringGroup, "broadcast-": broadcastGroup,
	} {
		sub, err := newSubscriber(s.Client, s.Log)
		require.NoError(t, err)
		messages, err := sub.Subscribe(ctx, s.Topic)
		require.NoError(t, err)
		s.Publish("to " + group)
		msg := s.Next(messages)
		assert.Equal(t, "to "+group, msg.UUID)
		assert.Contains(t, fixture.Delivery(t, msg).Group, group)
		require.True(t, msg.Ack())
		require.NoError(t, sub.Close())
	}
}
