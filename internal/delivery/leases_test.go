package delivery

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

func newTestLeases() *leases {
	return newLeases(Config{Lease: testLease}, nil, backoff.NewTurns(0), &reporter{})
}

func claimed(id, token string) []queue.Claimed { return []queue.Claimed{{ID: id, Token: token}} }

func TestAMessageWhoseLeaseRanOutUnnoticedIsNotHandedOut(t *testing.T) {
	l := newTestLeases()
	it := l.hold(claimed("a", "1"), time.Now().Add(-testLease))[0] // the process was stopped
	ctx, cancel := context.WithCancelCause(t.Context())
	assert.False(t, l.handOut(it, cancel))
	assert.NoError(t, ctx.Err())
	cancel(nil)
	assert.Zero(t, l.count())
}

func TestSettlingADeliveryKeepsALaterOneOfTheSameMessage(t *testing.T) {
	l := newTestLeases()
	first := l.hold(claimed("a", "1"), time.Now())[0]
	second := l.hold(claimed("a", "1/1"), time.Now())[0] // given back, and claimed again
	l.drop([]*item{first})
	require.Equal(t, []queue.Held{{Delivery: second.delivery()}}, l.all())

	l.extended([]queue.Held{{Delivery: first.delivery()}}, []string{"a"}, time.Now())
	assert.False(t, second.lost, "it was the first that is stale")
	l.drop([]*item{second})
	assert.Zero(t, l.count())
}
