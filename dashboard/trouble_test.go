package dashboard

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// TestAFailedLookIsSoonTriedAgain lets looks take two seconds: after one that has seen all, others get nineteen twentieths of
// the time; after one that has failed, half of it.
func TestAFailedLookIsSoonTriedAgain(t *testing.T) {
	l, now := newLooks(nil, time.Second), time.Now()
	l.now = func() time.Time { return now }
	gone := errors.New("redis is gone")
	for _, look := range []struct {
		name  string
		value any
		err   error
		pause time.Duration
	}{
		{"it has seen all", 1, nil, 40 * time.Second},
		{"it has failed", nil, gone, 2 * time.Second},
		{"topics could not be read", &overview{Err: gone}, nil, 2 * time.Second},
		{"all topics were read", &overview{}, nil, 40 * time.Second},
	} {
		_, err := l.get(t.Context(), look.name, func(context.Context) (any, error) {
			now = now.Add(2 * time.Second)
			return look.value, look.err
		})
		assert.Equal(t, look.err, err, look.name)
		assert.Equal(t, look.pause, l.pause, look.name)
	}
}

func TestTheFirstMinuteOfATrendIsDrawn(t *testing.T) {
	var one trend
	one.add(1, admin.Counts{Queued: 3})
	assert.Equal(t, "120.0,1.0 120.0,1.0", one.Waiting(), "a line of no length, which is a point")
}
