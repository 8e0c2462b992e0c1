package queue

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
)

// TestAnAppendOnlyFileTornInAScriptLosesNothing although Redis may run the first part of
// a script twice. Redis 7.0 cuts a torn file off after the last whole command, so the
// commands of the torn script stay in it, behind a MULTI that never ends. The restart
// after that ignores them, as it should; the next one does not.
func TestAnAppendOnlyFileTornInAScriptLosesNothing(t *testing.T) {
	for name, others := range map[string][]string{"one group": nil, "two groups": {"h"}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.New(t, redistest.Durable...)
			r := newSceneOn(t, server)
			g := r.group("g")
			for _, other := range others {
				r.group(other)
			}
			ids := []string{"1", "2", "3", "4", "5", "6"}
			for _, id := range ids {
				r.push(due(id))
			}
			request := r.request("c", 3)
			require.Len(t, r.claimWith(g, request), 3)
			tearAppendOnlyFile(t, r, server)
			require.Len(t, r.claimWith(g, request), 3, "the claim is not in the file")
			ack(t, g, "1", "2", "3")
			scripttest.Restart(t, server)

			assert.Equal(t, []string{"4#1", "5#1", "6#1"}, r.claim(g, "d", 10))
			for _, other := range others {
				assert.Len(t, r.claim(r.group(other), "e", 10), len(ids))
			}
		})
	}
}

// tearAppendOnlyFile kills Redis and cuts off the end of the last EXEC in its file.
func tearAppendOnlyFile(t *testing.T, r *scene, server *redistest.Server) {
	t.Helper()
	dir := r.Client.ConfigGet(t.Context(), "dir").Val()["dir"]
	require.NoError(t, server.KillFor(500*time.Millisecond))
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	content, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Contains(t, string(content[len(content)-6:]), "EXEC")
	require.NoError(t, os.Truncate(files[0], int64(len(content)-3)))
	require.NoError(t, server.Wait())
}
