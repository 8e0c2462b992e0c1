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
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: redistest.Client(tb)}, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, publisher.Close()) })
	payload := []byte("0123456789")
	return func() {
		msg := message.NewMessage("6f0c1b1e-0d1c-4d43-a1a5-2d9a5d1b8f6e", payload)
		delay.Message(msg, delay.For(time.Hour))
		if err := publisher.Publish("allocations", msg); err != nil {
			tb.Fatal(err)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	publish := publishOne(b)
	b.ReportAllocs()
	for b.Loop() {
		publish()
	}
}
