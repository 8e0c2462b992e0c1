package redisdelaytest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
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
