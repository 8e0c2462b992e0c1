package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheLoadContinuesWhenOrdersAreRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "LOADING", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
	ended := make(chan error, 1)
	go func() { ended <- generate(ctx, server.URL, 1e12, refused) }() // faster than a clock ticks
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var m dto.Metric
		require.NoError(c, refused.Write(&m))
		assert.Greater(c, m.GetCounter().GetValue(), 2.0)
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

func TestTracesAreOptIn(t *testing.T) {
	assert.Nil(t, parse(nil).traces)
	assert.Nil(t, parse([]string{"-trace=false"}).traces)
	assert.Equal(t, os.Stdout, parse([]string{"-trace"}).traces)
}
