package relay_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	// Close of a redisstream.Subscriber does not wait for its reader, and Watermill's suite
	// leaves messages that came after a test's end in its multiplier.
	redistest.Main(m,
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.(*Subscriber).read"),
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe.func2"),
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe.func3"),
	)
}
