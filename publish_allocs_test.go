//go:build !race

package redisdelay_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPublishAllocatesLittle: the limit includes the message itself (9), go-redis (about 15) and the time limit of the call (9).
// BenchmarkPublish shows the current number.
func TestPublishAllocatesLittle(t *testing.T) {
	publish := publishOne(t)
	publish() // the first one opens the topic
	least := math.Inf(1)
	for range 10 { // a call that waits long needs a timer more
		least = min(least, testing.AllocsPerRun(100, publish))
	}
	assert.LessOrEqual(t, least, 60.0)
}

// TestPublishAsyncAllocatesLittle: the message itself (9), what the Marshaler makes of it, and the future.
func TestPublishAsyncAllocatesLittle(t *testing.T) {
	publisher, publish := publishOneAsync(t)
	publish()
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, publish), 20.0)
	assert.NoError(t, publisher.Flush(t.Context()))
}
