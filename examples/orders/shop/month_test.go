package shop

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

// openShopInNoTime starts a service in a bubble, where it is asked without a network.
func openShopInNoTime(t *testing.T, payWithin time.Duration) (*Service, *redisdelaytest.Redis) {
	t.Helper()
	r := redisdelaytest.New(t)
	s, err := New(Config{Client: r.Client(), PayWithin: payWithin, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Router.Run(context.Background()) }()
	<-s.Router.Running()
	t.Cleanup(func() {
		assert.NoError(t, s.Router.Close())
		assert.NoError(t, <-ended)
		assert.NoError(t, s.publisher.Close())
	})
	return s, r
}

func (s *Service) ask(t *testing.T, method, path, body string) (got answer) {
	t.Helper()
	response := httptest.NewRecorder()
	s.Mux.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	require.Less(t, response.Code, http.StatusBadRequest, response.Body)
	require.NoError(t, json.NewDecoder(response.Body).Decode(&got))
	return got
}

func TestASnoozedOrderIsClosedAfterAMonth(t *testing.T) {
	const day = 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		s, r := openShopInNoTime(t, 14*day)
		order := s.ask(t, http.MethodPost, "/orders", "").ID
		paid := s.ask(t, http.MethodPost, "/orders", "").ID
		r.Advance(10 * day)
		s.ask(t, http.MethodPost, "/orders/"+paid+"/pay", "")
		s.ask(t, http.MethodPost, "/orders/"+order+"/snooze", `{"for": "480h"}`)
		require.Len(t, r.Undelivered(topic), 1)
		assert.Equal(t, order, r.Undelivered(topic)[0].Key)

		r.Advance(20*day - time.Millisecond)
		assert.Equal(t, "open", s.ask(t, http.MethodGet, "/orders/"+order, "").State)
		r.Advance(time.Millisecond)
		assert.Equal(t, "closed", s.ask(t, http.MethodGet, "/orders/"+order, "").State)
		assert.Equal(t, "paid", s.ask(t, http.MethodGet, "/orders/"+paid, "").State)
		assert.Empty(t, r.Undelivered(topic))
	})
}
