package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestTheRateIsMeasuredWithoutOne given, if there is something to measure it by.
func TestTheRateIsMeasuredWithoutOne(t *testing.T) {
	s := newStage(t)
	s.Topic = "orders"
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup, c.MaxInFlight = "g", 3 })
	s.publish("orders", "u", "", "", time.Hour)
	assert.Contains(t, s.must("forecast", "orders"), "not known: nothing is due")
	for n := range 3 {
		s.publish("orders", fmt.Sprint("u", n), "", "", 0)
	}
	s.wait = func(_ context.Context, d time.Duration) error { // what is handled while the program measures
		assert.Equal(t, 2*time.Second, d)
		for range 3 {
			s.Next(messages).Ack()
		}
		left := func() bool { return s.Client.HLen(t.Context(), s.Key("messages")).Val() == 1 }
		require.Eventually(t, left, fixture.Soon, 5*time.Millisecond, "the one that is due in an hour")
		return nil
	}
	var o struct {
		Group        string
		Waiting, Due int
		Estimate     struct {
			RatePerSecond float64
			Measured      bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.must("forecast", "orders", "--measure", "2s", "-o", "json")), &o))
	assert.Equal(t, "g", o.Group, "the only one")
	assert.True(t, o.Estimate.Measured)
	assert.Positive(t, o.Estimate.RatePerSecond, "three messages in however long that took")
	assert.Equal(t, []int{0, 1}, []int{o.Waiting, o.Due})
}

func TestADemandBeyondTheForecastIsAUsageError(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "u", "", "", time.Hour)
	r := s.run("forecast", "orders", "--next", "1h", "--rate", "1/s", "--per-worker", "1/s", "--at", "2h")
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "--at is after the end of the Forecast")
	r = s.run("forecast", "orders", "--next", "1h", "--rate", "1/s", "--per-worker", "1/s", "--within", "2h")
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "--within goes on after the end of the Forecast")
}

// TestADemandNeedsNoNext looks as far ahead as it takes; and a time that comes while the program works is now.
func TestADemandNeedsNoNext(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "u", "", "", time.Hour)
	justOver := time.Now().Add(-time.Minute).Format("15:04")
	for _, at := range []string{justOver, "7d", "now"} {
		assert.Contains(t, s.must("forecast", "orders", "--rate", "1/s", "--per-worker", "1/s", "--at", at, "--within", "5m"), "workers", at)
	}
	r := s.run("forecast", "orders", "--rate", "1/s", "--per-worker", "1/s", "--at", time.Now().Add(-time.Hour).Format(time.RFC3339))
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "--at is before the Forecast")
}

func TestAChartShowsWhatIsLittleToo(t *testing.T) {
	var buckets []admin.Bucket
	for _, n := range []int{0, 1, 500, 1000} {
		buckets = append(buckets, admin.Bucket{Messages: n})
	}
	assert.Equal(t, "·▁▄█", sparkline(buckets))
	assert.Equal(t, "··", sparkline(make([]admin.Bucket, 2)))
}
