package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

// TestAPausedScheduleIsShown without a next time. It may be paused if the server keeps its data between runs.
func TestAPausedScheduleIsShown(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	server, err := redisserver.Start(t.Context())
	require.NoError(t, err)
	defer server.Stop()
	schedules, err := declare(t.Context(), server.Client(), time.Now().UnixMilli())
	require.NoError(t, err)
	require.NoError(t, schedules.Pause(t.Context(), "report-eu", redisdelay.Pause{}))
	require.NoError(t, show(t.Context(), schedules))
}
