package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestADueMessageReachesTheTargetUnchanged(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.run()
	msg := message.NewMessage("m", []byte("payload"))
	msg.Metadata.Set("k", "v")
	delay.Message(msg, delay.For(300*time.Millisecond))
	due := time.Now().Add(300 * time.Millisecond)
	require.NoError(t, s.publisher().Publish(s.Topic, msg))
	if early := s.target.uuids(); time.Now().Before(due) {
		assert.Empty(t, early)
	}
	s.gets("m")
	assert.False(t, time.Now().Before(due.Truncate(time.Millisecond)))

	got := s.target.messages()[0]
	assert.Equal(t, "payload", string(got.Payload))
	assert.Equal(t, "v", got.Metadata.Get("k"))
	assert.Len(t, got.Metadata, 3)
	assert.Equal(t, "+ 300ms", got.Metadata.Get(delay.DelayedForKey), "honoured")
	_, delivered := redisdelay.DeliveryFromContext(got.Context())
	assert.False(t, delivered, "a consumer does not find the relay's delivery")

	require.NoError(t, s.publisher().Publish(s.Topic, got), "as a requeuer does")
	s.gets("m", "m")
}

func TestABatchIsPublishedInOneCallAndInOrder(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	publisher := s.Publisher()
	var want []string
	var call []*message.Message
	for i := range 250 {
		want = append(want, fmt.Sprint(i))
		call = append(call, fixture.Delayed(fmt.Sprint(i), time.Millisecond))
	}
	require.NoError(t, publisher.Publish(s.Topic, call...))
	<-time.After(20 * time.Millisecond) // so that all are due
	s.run()
	s.gets(want...)
	assert.LessOrEqual(t, s.target.tried(), 5)
}

func TestARelayStartsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Durable...)
	s := &scene{fixture.NewOn(t, server), &target{}}
	s.due("m")
	require.NoError(t, server.Down())
	s.run()
	s.until("the relay has tried", func() bool { return s.Log.Count("trying again") == 1 })
	server.Up()
	require.NoError(t, server.Wait())
	s.until("the message is there", func() bool { return len(s.target.uuids()) > 0 })
	assert.Equal(t, 1, s.Log.Count("trying again"))
}
