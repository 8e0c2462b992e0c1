package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// served is a dashboard of the command, which a signal ends.
type served struct {
	t      *testing.T
	url    string
	client *http.Client
}

// serveDashboard starts the command with an open stream, so that its end shows that streams do not hold it up.
func serveDashboard(t *testing.T, server *redistest.Server, args ...string) *served {
	t.Helper()
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	cmd := p.command(context.Background(), append([]string{binary, "dashboard", "--listen", "127.0.0.1:0", "-o", "json"}, args...)...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	require.True(t, lines.Scan(), lines.Err())
	hung.Stop()
	var started struct{ Event string }
	require.NoError(t, json.Unmarshal(lines.Bytes(), &started))
	_, address, found := strings.Cut(started.Event, "the dashboard is at ")
	require.True(t, found, started.Event)
	s := &served{t: t, url: address, client: &http.Client{Transport: &http.Transport{}}}
	stream, err := s.client.Get(s.url + "events?page=")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_, _ = io.Copy(io.Discard, out)
		assert.NoError(t, cmd.Wait())
		assert.NoError(t, stream.Body.Close())
		s.client.CloseIdleConnections()
	})
	return s
}

func (s *served) post(path string, form url.Values) int {
	s.t.Helper()
	answer, err := s.client.PostForm(s.url+path, form)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Body.Close())
	return answer.StatusCode
}

// TestTheDashboardIsReadOnlyWithoutWrite: it tries to pause a topic.
func TestTheDashboardIsReadOnlyWithoutWrite(t *testing.T) {
	server := redistest.New(t)
	stage(t, server.Client(t), 1)
	a, err := admin.New(admin.Config{Client: server.Client(t)})
	require.NoError(t, err)
	paused := func() bool {
		stats, err := a.Stats(t.Context(), admin.StatsOptions{Topics: []string{orders}})
		require.NoError(t, err)
		return stats[0].Pause != nil
	}
	reader := serveDashboard(t, server)
	assert.Equal(t, http.StatusForbidden, reader.post("pause?topic=orders", nil))
	assert.False(t, paused())
	writer := serveDashboard(t, server, "--write")
	assert.Equal(t, http.StatusOK, writer.post("pause?topic=orders", nil))
	assert.True(t, paused())
}
