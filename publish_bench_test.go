package redisdelay_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// publishOne publishes one delayed message, as a request handler does.
func publishOne(tb testing.TB) func() {
	publisher := allocating(tb)
	return func() {
		if err := publisher.Publish("allocations", anHourLater()); err != nil {
			tb.Fatal(err)
		}
	}
}

// publishOneAsync publishes one without waiting.
func publishOneAsync(tb testing.TB) (*redisdelay.Publisher, func()) {
	publisher := allocating(tb)
	return publisher, func() { publisher.PublishAsync("allocations", anHourLater()) }
}

func allocating(tb testing.TB) *redisdelay.Publisher {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: redistest.Client(tb)}, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, publisher.Close()) })
	return publisher
}

var tenBytes = []byte("0123456789")

func anHourLater() *message.Message {
	msg := message.NewMessage("6f0c1b1e-0d1c-4d43-a1a5-2d9a5d1b8f6e", tenBytes)
	delay.Message(msg, delay.For(time.Hour))
	return msg
}

func BenchmarkPublish(b *testing.B) {
	publish := publishOne(b)
	b.ReportAllocs()
	for b.Loop() {
		publish()
	}
}

func BenchmarkPublishAsync(b *testing.B) {
	publisher, publish := publishOneAsync(b)
	b.ReportAllocs()
	for b.Loop() {
		publish()
	}
	require.NoError(b, publisher.Flush(b.Context()))
}
