package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// crowd counts how many are inside at once, and keeps them there until it is let go.
type crowd struct {
	inside, most atomic.Int64
	leave        chan struct{}
}

func (c *crowd) enter() {
	n := c.inside.Add(1)
	defer c.inside.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	<-c.leave
}

// stuck is the answer to a reader that reads nothing.
type stuck struct {
	*httptest.ResponseRecorder
	crowd    *crowd
	deadline time.Time
}

func (s *stuck) Write(b []byte) (int, error)         { s.crowd.enter(); return len(b), nil }
func (s *stuck) SetWriteDeadline(at time.Time) error { s.deadline = at; return nil }

// TestStalledReadersAreBounded in time and number.
func TestStalledReadersAreBounded(t *testing.T) {
	s := newScene(t)
	msg := fixture.Keyed("a", "k", time.Hour)
	msg.Payload = []byte("{}")
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	m, err := s.admin.Message(t.Context(), s.Topic, admin.Ref{Key: "k"})
	require.NoError(t, err)
	for path, most := range map[string]int{
		"payload" + s.at("id", m.ID): maxDownloads, "messages" + s.at(): maxPages, "find?text=zzz": maxSearches, "messages" + s.at("key", "k"): maxSearches,
	} {
		c := crowd{leave: make(chan struct{})}
		began, readers := time.Now(), most+10
		var arrived atomic.Int64
		var done sync.WaitGroup
		for range readers {
			done.Go(func() {
				arrived.Add(1)
				w := &stuck{ResponseRecorder: httptest.NewRecorder(), crowd: &c}
				s.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+path, nil))
				assert.False(t, w.deadline.IsZero(), path)
				assert.WithinRange(t, w.deadline, began, time.Now().Add(2*maxWait+sendFor), path)
			})
		}
		s.until("all have begun", func() bool { return int(arrived.Load()) == readers && int(c.inside.Load()) >= most })
		close(c.leave)
		done.Wait()
		assert.LessOrEqual(t, int(c.most.Load()), most, path)
	}
}

// TestTheLogDistinguishesSuccessFromFailure, in lines of one form and a bounded length.
func TestTheLogDistinguishesSuccessFromFailure(t *testing.T) {
	log := watermill.NewCaptureLogger()
	s := newScene(t, func(c *Config) {
		c.Logger, c.Actor = log, func(*http.Request) string { return strings.Repeat("eve\n", 1000) }
	})
	s.Publish("a")
	s.kill("g", 1)
	_, _ = s.post("pause"+s.at("group", "g"), url.Values{"reason": {"holi\nday"}})
	_, _ = s.post("pause"+s.at("group", strings.Repeat("none", 1000)), nil)
	_, _ = s.post("search"+s.at("in", "dead"), url.Values{"text": {"a secret"}})
	_, _ = s.post("requeue"+s.at("in", "dead"), url.Values{"count": {"1"}, "number": {"1"}})
	require.NoError(t, s.dashboard.Close())
	assert.NotContains(t, fmt.Sprint(log.Captured()), "a secret")
	texts := func(level watermill.LogLevel) (texts []string) {
		for _, line := range log.Captured()[level] {
			texts = append(texts, line.Msg)
			assert.Less(t, len(fmt.Sprint(line.Fields)), 2000)
			assert.NotContains(t, fmt.Sprint(line.Fields), "\n")
		}
		return texts
	}
	assert.Equal(t, []string{"Dashboard: pause: done", "Dashboard: requeue: started", "Dashboard: requeue: done"}, texts(watermill.InfoLogLevel))
	assert.Equal(t, []string{"Dashboard: pause: failed"}, texts(watermill.ErrorLogLevel))
}
