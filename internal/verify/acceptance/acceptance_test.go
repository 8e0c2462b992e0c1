package acceptance

import (
	"testing"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

type subConfig = redisdelay.SubscriberConfig

func closeTimeout(d time.Duration) func(*subConfig) {
	return func(c *subConfig) { c.CloseTimeout = d }
}

func group(name string) func(*subConfig) {
	return func(c *subConfig) {
		c.ConsumerGroup, c.MaxInFlight, c.PollInterval = name, 10, time.Second
	}
}

// onCluster returns a scene on the package's cluster.
func onCluster(t *testing.T) *fixture.Scene {
	t.Helper()
	return fixture.NewWith(t, redistest.SharedCluster(t).Client(t))
}
