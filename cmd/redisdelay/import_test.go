package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestAnImportKilledThreeTimesStoresEachJobOnce, with its due time.
func TestAnImportKilledThreeTimesStoresEachJobOnce(t *testing.T) {
	server := redistest.New(t)
	client := server.Client(t)
	s := fixture.NewWith(t, client)
	s.Topic = "jobs"
	count := *many
	want := map[string]int64{}
	now := s.Now()
	for from := 0; from < count; from += 500 {
		var members []redis.Z
		for n := from; n < min(from+500, count); n++ {
			due := now.Add(time.Hour + time.Duration(n)*1777*time.Millisecond).UnixMilli()
			want[fmt.Sprint("job ", n)] = due
			members = append(members, redis.Z{Score: float64(due) / 1000, Member: fmt.Sprint("job ", n)})
		}
		require.NoError(t, client.ZAdd(t.Context(), "old", members...).Err())
	}
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	busy := program{t: t, env: []string{"REDIS_URL=redis://" + proxy(t, server.Addr, slowly(time.Millisecond))}}
	args := []string{"import", "jobs", "--zset", "old", "--score", "s"}
	for part := range 3 {
		cmd := busy.command(context.Background(), append([]string{binary}, args...)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			stored, err := client.ZCard(t.Context(), s.Key("scheduled")).Result()
			return err == nil && int(stored) > count*(part+1)/5
		}, fixture.Soon, time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait(), "it has ended before it was killed: %s", out.String())
	}
	r := p.run(append(args, "-o", "json")...)
	require.Zero(t, r.code, r.err)
	var o struct{ Done, Skipped int }
	require.NoError(t, json.Unmarshal([]byte(r.out), &o))
	assert.Equal(t, count, o.Done+o.Skipped)
	assert.Positive(t, o.Done, "it was killed in the middle")
	assert.Greater(t, o.Skipped, count*3/5)

	got := map[string]int64{}
	lines := p.run("export", "jobs")
	require.Zero(t, lines.code, lines.err)
	for text := range strings.Lines(lines.out) {
		var l struct {
			Payload string
			Due     int64
		}
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		if _, twice := got[l.Payload]; twice {
			require.Fail(t, "it is stored twice", l.Payload)
		}
		got[l.Payload] = l.Due
	}
	assert.Len(t, got, count)
	for member, due := range want {
		require.Equal(t, due, got[member], member)
	}
}
