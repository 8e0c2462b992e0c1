package redisdelaytest_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

// shop is the code under test: it closes orders that nobody pays.
type shop struct {
	publisher message.Publisher

	mu     sync.Mutex
	closed []string // guarded by mu
}

func (s *shop) open(order string) error {
	closing := message.NewMessage(watermill.NewUUID(), []byte(order))
	redisdelay.SetKey(closing, order)
	delay.Message(closing, delay.For(30*time.Minute))
	return s.publisher.Publish("order-closings", closing)
}

func (s *shop) close(closing *message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, string(closing.Payload))
	return nil
}

func (s *shop) closings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.closed)
}

func TestAnOrderIsClosedAfter30Minutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisdelaytest.New(t)
		shop := &shop{publisher: publisher(t, r)}
		handle(t, r.SubscriberConfig("shop"), "order-closings", shop.close)

		require.NoError(t, shop.open("order-42"))
		r.Advance(29 * time.Minute)
		assert.Empty(t, shop.closings())
		assert.Equal(t, "order-42", r.Undelivered("order-closings")[0].Key)

		r.Advance(time.Minute)
		assert.Equal(t, []string{"order-42"}, shop.closings())
		assert.Empty(t, r.Undelivered("order-closings"))
	})
}
