package shop

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const soon = 15 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is a running service, seen over HTTP.
type shop struct {
	t    *testing.T
	url  string
	stop func()
}

// openShop starts a service; it must end without an error.
func openShop(t *testing.T, payWithin time.Duration) *shop {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	s, err := New(Config{Client: client, PayWithin: payWithin, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	web := &shop{t: t, url: "http://" + listener.Addr().String(), stop: func() {
		cancel()
		assert.NoError(t, <-ended)
	}}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		web.stop()
	})
	return web
}

// answer is what the service answers.
type answer struct {
	Code     int `json:"-"`
	ID       string
	State    string
	ClosesAt time.Time
	Closing  string
	Error    string
}

func (s *shop) call(method, path, body string) answer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer func() { assert.NoError(s.t, response.Body.Close()) }()
	out := answer{Code: response.StatusCode}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		require.NoError(s.t, json.NewDecoder(response.Body).Decode(&out))
	}
	return out
}

// becomes waits for the state of an order.
func (s *shop) becomes(id, state string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		assert.Equal(c, state, s.call("GET", "/orders/"+id, "").State)
	}, soon, 10*time.Millisecond)
}

func TestAnUnpaidOrderIsClosed(t *testing.T) {
	s := openShop(t, 300*time.Millisecond)
	opened := s.call("POST", "/orders", "")
	require.Equal(t, http.StatusCreated, opened.Code)
	assert.Equal(t, "open", opened.State)
	s.becomes(opened.ID, "closed")

	paid := s.call("POST", "/orders/"+opened.ID+"/pay", "")
	assert.Equal(t, http.StatusConflict, paid.Code)
	assert.Equal(t, "the order cannot be changed any more: it is closed, so it cannot become paid", paid.Error)
}

func TestAnOrderIsSnoozedAndPaid(t *testing.T) {
	s := openShop(t, time.Hour)
	opened := s.call("POST", "/orders", "")
	assert.WithinDuration(t, time.Now().Add(time.Hour), opened.ClosesAt, time.Minute)
	assert.Regexp(t, "^due in (1h|59m)", s.call("GET", "/orders/"+opened.ID, "").Closing)

	snoozed := s.call("POST", "/orders/"+opened.ID+"/snooze", `{"for": "3h"}`)
	require.Equal(t, http.StatusOK, snoozed.Code, snoozed.Error)
	assert.WithinDuration(t, time.Now().Add(3*time.Hour), snoozed.ClosesAt, time.Minute)

	for range 2 { // as a client does that got no answer
		paid := s.call("POST", "/orders/"+opened.ID+"/pay", "")
		require.Equal(t, http.StatusOK, paid.Code, paid.Error)
		assert.Equal(t, answer{Code: http.StatusOK, ID: opened.ID, State: "paid"}, paid)
	}
	assert.Equal(t, http.StatusConflict, s.call("POST", "/orders/"+opened.ID+"/snooze", `{"for": "1h"}`).Code)
}

func TestASnoozedOrderIsClosedLater(t *testing.T) {
	s := openShop(t, time.Hour)
	opened := s.call("POST", "/orders", "")
	require.Equal(t, http.StatusOK, s.call("POST", "/orders/"+opened.ID+"/snooze", `{"for": "10ms"}`).Code)
	s.becomes(opened.ID, "closed")
}

func TestBadRequestsAreRefused(t *testing.T) {
	s := openShop(t, time.Hour)
	opened := s.call("POST", "/orders", "")
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"GET", "/orders/unknown", "", http.StatusNotFound},
		{"POST", "/orders/unknown/pay", "", http.StatusNotFound},
		{"POST", "/orders/unknown/snooze", `{"for": "1h"}`, http.StatusNotFound},
		{"POST", "/orders/" + opened.ID + "/snooze", "", http.StatusBadRequest},
		{"POST", "/orders/" + opened.ID + "/snooze", `{"for": "soon"}`, http.StatusBadRequest},
		{"POST", "/orders/" + opened.ID + "/snooze", `{"for": "-1h"}`, http.StatusBadRequest},
		{"DELETE", "/orders/" + opened.ID, "", http.StatusMethodNotAllowed},
	} {
		assert.Equal(t, c.code, s.call(c.method, c.path, c.body).Code, "%s %s %s", c.method, c.path, c.body)
	}
}
