package redisdelayotel_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	redisdelayotel "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
)

func TestASpanOfPublishAsyncEndsWithTheOutcome(t *testing.T) {
	w := watch(t)
	own := w.Publisher()
	p := w.telemetry.AsyncPublisher(w.telemetry.AsyncPublisher(own)) // two layers report once
	require.NoError(t, p.Publish(w.Topic, message.NewMessage("waited for", nil)))
	messages := []*message.Message{fixture.Keyed("a", "k", 0), fixture.Keyed("b", "k", 0)}
	stored, duplicate := p.PublishAsync(w.Topic, messages[0]), p.PublishAsync(w.Topic, messages[1])
	require.ErrorIs(t, own.Flush(t.Context()), redisdelay.ErrDuplicateMessage)
	require.NoError(t, stored.Err())
	require.ErrorIs(t, duplicate.Err(), redisdelay.ErrDuplicateMessage)
	assert.Empty(t, messages[0].Metadata.Get("traceparent"), "the caller's messages stay as they are")

	sends := w.named("send "+w.Topic, 3)
	assert.Equal(t, "a", attrs(sends[1])["messaging.message.id"])
	assert.Equal(t, codes.Unset, sends[1].Status.Code)
	assert.Equal(t, codes.Error, sends[2].Status.Code)
	received := w.Subscribe()
	w.Next(received).Ack()
	got := w.Next(received)
	assert.Contains(t, got.Metadata.Get("traceparent"), id(sends[1]).String())
	got.Ack()
}

func TestASpanOfARejectedCallEndsAtOnce(t *testing.T) {
	w := watch(t)
	p := w.telemetry.AsyncPublisher(w.Publisher())
	require.ErrorIs(t, p.PublishAsync("", message.NewMessage("a", nil)).Err(), redisdelay.ErrEmptyTopic)
	require.ErrorIs(t, p.PublishAsync(w.Topic, nil).Err(), redisdelay.ErrNilMessage)
	assert.Len(t, w.spans.GetSpans(), 1)
}

type panickingAsync struct{ redisdelayotel.AsyncPublisher }

func (panickingAsync) PublishAsync(string, ...*message.Message) *redisdelay.PublishFuture {
	panic("oops")
}

func TestAPanicInPublishAsyncEndsTheSpanAndPropagates(t *testing.T) {
	w := watch(t)
	assert.PanicsWithValue(t, "oops", func() {
		w.telemetry.AsyncPublisher(panickingAsync{}).PublishAsync(w.Topic, message.NewMessage("a", nil))
	})
	assert.Equal(t, "panic", attrs(w.one("send " + w.Topic))["error.type"])
}
