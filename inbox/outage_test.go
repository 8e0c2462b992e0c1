package inbox_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/inbox"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// TestAnOutageEndsWhenRunReturns: otherwise, an observer such as a gauge of outages would report it forever.
func TestAnOutageEndsWhenRunReturns(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody is there
	defer client.Close()                                           //nolint:errcheck // nothing is open
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan bool, 10)
	i, err := inbox.New(inbox.Config{Client: client, Observer: observe.Observer{
		OutageBegan: func(observe.OutageBegan) { stop() },
		OutageEnded: func(e observe.OutageEnded) { ended <- e.Stopped },
	}}, nil)
	require.NoError(t, err)
	require.NoError(t, i.Run(ctx))
	require.Len(t, ended, 1)
	assert.True(t, <-ended)
}
