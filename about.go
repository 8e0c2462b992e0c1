package redisdelay

import (
	"encoding/json"
	"os"

	"github.com/redisdelay/watermill-redisdelay/internal/delivery"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// maxHeld is how many messages a consumer names at most, in each partition.
	maxHeld = 50

	// maxHeldBytes limits their ids, which claims carry, too.
	maxHeldBytes = 2048
)

// about is what a consumer says of itself to people, in JSON, with some of the messages that
// its handlers have had for longest. Package admin reads it.
func about(config SubscriberConfig, extended []delivery.Extended) string {
	told := queue.About{
		Name: config.Consumer, PID: os.Getpid(), Protocol: queue.Version, MaxDeliveries: config.MaxDeliveries,
	}
	size := 0
	for _, e := range extended[:min(len(extended), maxHeld)] {
		if size += len(e.ID); size > maxHeldBytes {
			break
		}
		if told.Held == nil {
			told.Held = map[string]queue.HeldTimes{}
		}
		told.Held[e.ID] = queue.HeldTimes{e.Fence, int64(e.Times)}
	}
	text, err := json.Marshal(told)
	if err != nil {
		return "{}" // of a name and numbers, there is none
	}
	return string(text)
}
