package redisdelaytest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

func TestKeysExpireByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisdelaytest.New(t)
		require.NoError(t, r.Client().Set(t.Context(), "k", "v", time.Hour).Err())
		r.Advance(time.Hour - time.Millisecond)
		require.NoError(t, r.Client().Get(t.Context(), "k").Err())
		r.Advance(time.Millisecond)
		require.ErrorIs(t, r.Client().Get(t.Context(), "k").Err(), redis.Nil)
	})
}

func TestDefaultRetriesAreDeterministic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := redisdelaytest.New(t), newDiary()
		p := publisher(t, r)
		config := r.SubscriberConfig("g")
		config.MaxDeliveries = 4
		handle(t, config, "work", func(*message.Message) error {
			d.add("handled")
			return errors.New("failed")
		})
		require.NoError(t, p.Publish("work", later("a", time.Hour)))
		r.Advance(2 * time.Hour)
		assert.Equal(t, []string{"1h0m0s handled", "1h0m0.1s handled", "1h0m0.3s handled", "1h0m0.7s handled"}, d.lines())
	})
}
