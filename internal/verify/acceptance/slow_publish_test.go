package acceptance

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// publishAtOnce publishes messages of some sizes, each with a call of its own, all at the same time. It returns the errors.
func publishAtOnce(t *testing.T, s *fixture.Scene, p *redisdelay.Publisher, sizes []int) []error {
	t.Helper()
	errs := make([]error, len(sizes))
	var calls sync.WaitGroup
	for i, size := range sizes {
		calls.Go(func() {
			errs[i] = p.Publish(s.Topic, message.NewMessage(watermill.NewUUID(), bytes.Repeat([]byte("x"), size)))
		})
	}
	calls.Wait()
	return errs
}

// patient makes a publisher try for so long that a slow machine makes no test fail.
func patient(c *redisdelay.PublisherConfig) { c.PublishTimeout = 2 * time.Minute }

// stored is how many messages Redis has.
func stored(t *testing.T, s *fixture.Scene) int {
	t.Helper()
	return int(s.Client.ZCard(t.Context(), s.Key("scheduled")).Val())
}

// TestASlowConnectionStoresEverything that many goroutines publish at once, although all of it takes longer than ReadTimeout.
func TestASlowConnectionStoresEverything(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.Shared(t)
	s := fixture.NewOn(t, server)
	client := redis.NewClient(&redis.Options{Addr: redistest.NewLink(t, server.Addr, 300e3).Addr, ReadTimeout: 300 * time.Millisecond})
	t.Cleanup(func() { _ = client.Close() })
	p := s.Publisher(patient, func(c *redisdelay.PublisherConfig) { c.Client = client })
	for _, err := range publishAtOnce(t, s, p, slices.Repeat([]int{10_000}, 60)) {
		assert.NoError(t, err)
	}
	assert.Equal(t, 60, stored(t, s), "each is stored once")
}

// TestARejectedCallDoesNotFailOtherCalls, and its error is certain.
func TestARejectedCallDoesNotFailOtherCalls(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.NewOn(t, redistest.New(t, "--proto-max-bulk-len", "1mb"))
	p := s.Publisher(patient)
	large := p.PublishAsync(s.Topic, message.NewMessage("large", make([]byte, 2<<20)))
	small := p.PublishAsync(s.Topic, message.NewMessage("small", make([]byte, 8)))
	require.NoError(t, small.Wait(t.Context()))
	certain := func(err error) {
		require.Error(t, err)
		assert.False(t, errors.Is(err, redisdelay.ErrOutcomeUnknown), err)
	}
	certain(large.Wait(t.Context()))

	sizes := slices.Repeat([]int{8}, 103)
	for i := range 10 {
		sizes[10*i] = 2 << 20
	}
	for i, err := range publishAtOnce(t, s, p, sizes) {
		if sizes[i] == 8 {
			assert.NoError(t, err)
		} else {
			certain(err)
		}
	}
	assert.Equal(t, 1+103-10, stored(t, s))
}

// TestEverythingIsStoredIfTheServerDropsLargeBatches because its memory for clients is small.
func TestEverythingIsStoredIfTheServerDropsLargeBatches(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.NewOn(t, redistest.New(t, "--maxmemory-clients", "4mb"))
	for _, err := range publishAtOnce(t, s, s.Publisher(patient), slices.Repeat([]int{10_000}, 600)) {
		assert.NoError(t, err)
	}
	assert.Equal(t, 600, stored(t, s))
}
