package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestATopicThatCannotBeReadHidesNoOther: the others are shown, and then what is wrong with it.
func TestATopicThatCannotBeReadHidesNoOther(t *testing.T) {
	server := redistest.New(t)
	client := server.Client(t)
	stage(t, client, 1)
	require.NoError(t, client.Set(t.Context(), "{redisdelay:broken:0}:scheduled", "x", 0).Err())
	require.NoError(t, client.HSet(t.Context(), "{redisdelay:topics}", "broken", "1", "newer", "9").Err())
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	for _, command := range [][]string{
		{"stats"},
		{"stats", "-o", "json"},
		{"stats", "--max-dead", "1000"},
		{"consumers"},
		{"consumers", "-o", "json"},
		{"top", "-o", "json", "--samples", "2"},
	} {
		r := p.run(command...)
		assert.Contains(t, r.out, orders, command)
		said := r.out + r.err
		assert.Contains(t, said, ":scheduled", command)
		assert.Contains(t, said, "broken", command)
		assert.Contains(t, said, "this library knows up to", command)
		if command[0] != "top" {
			assert.Equal(t, 1, r.code, command)
			assert.Contains(t, r.err, "2 of ", command)
		}
	}
}
