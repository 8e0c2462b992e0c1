package redisdelay

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/delivery"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// TestTheInfoOfAConsumerIsBounded whatever its handlers hold: claims carry it.
func TestTheInfoOfAConsumerIsBounded(t *testing.T) {
	config := SubscriberConfig{ConsumerName: "host-3", MaxDeliveries: 5}
	info := func(extended ...delivery.Extended) (decoded queue.ConsumerInfo) {
		t.Helper()
		text := consumerInfo(config, extended)
		assert.Less(t, len(text), 4096)
		require.NoError(t, json.Unmarshal([]byte(text), &decoded))
		return decoded
	}
	assert.Equal(t, queue.ConsumerInfo{Name: "host-3", PID: os.Getpid(), MaxDeliveries: 5}, info())
	assert.Equal(t, map[string]queue.HeldTimes{"a": {7, 3}}, info(delivery.Extended{ID: "a", Token: 7, Times: 3}).Held)

	var many, long []delivery.Extended
	for i := range 100 {
		many = append(many, delivery.Extended{ID: fmt.Sprint("id ", i), Token: 1, Times: 1})
		long = append(long, delivery.Extended{ID: fmt.Sprint(i, strings.Repeat("x", 500)), Token: 1, Times: 1})
	}
	assert.Len(t, info(many...).Held, 50)
	assert.Contains(t, info(many...).Held, "id 0")
	assert.Contains(t, info(many...).Held, "id 49")
	assert.Len(t, info(long...).Held, 4)
}
