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

// TestAConsumerSaysLittleOfItself whatever its handlers hold: claims carry it.
func TestAConsumerSaysLittleOfItself(t *testing.T) {
	config := SubscriberConfig{Consumer: "host-3", MaxDeliveries: 5}
	say := func(extended ...delivery.Extended) (said queue.ConsumerInfo) {
		t.Helper()
		text := consumerInfo(config, extended)
		assert.Less(t, len(text), 4096)
		require.NoError(t, json.Unmarshal([]byte(text), &said))
		return said
	}
	assert.Equal(t, queue.ConsumerInfo{Name: "host-3", PID: os.Getpid(), MaxDeliveries: 5}, say())
	assert.Equal(t, map[string]queue.HeldTimes{"a": {7, 3}}, say(delivery.Extended{ID: "a", Token: 7, Times: 3}).Held)

	var many, long []delivery.Extended
	for i := range 100 {
		many = append(many, delivery.Extended{ID: fmt.Sprint("id ", i), Token: 1, Times: 1})
		long = append(long, delivery.Extended{ID: fmt.Sprint(i, strings.Repeat("x", 500)), Token: 1, Times: 1})
	}
	assert.Len(t, say(many...).Held, 50)
	assert.Contains(t, say(many...).Held, "id 0")
	assert.Contains(t, say(many...).Held, "id 49")
	assert.Len(t, say(long...).Held, 4)
}
