package acceptance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// The code of docs/use/ordering.md, as the tests use it.

// recipe: a wallet
func deposit(msg *message.Message) error {
	d, _ := redisdelay.DeliveryFromContext(msg.Context())
	// One statement checks the token and writes, so a handler that has lost its lease writes nothing.
	return wallets.Add(msg.Context(), msg.UUID, d.Token, msg.Payload)
}

// end of recipe

// recipe: a locked resource
var errLocked = errors.New("the resource is locked")

func update(msg *message.Message) error {
	d, _ := redisdelay.DeliveryFromContext(msg.Context())
	if locked(msg) {
		// Does not count as a delivery, and only this key waits. Defer takes effect with the Nack, so return an error:
		// nil would ack the message.
		return errors.Join(errLocked, d.Defer(delay.For(10*time.Second)))
	}
	return apply(msg)
}

// end of recipe

// store keeps the highest token of each deposit, and refuses a lower one.
type store struct {
	mu     sync.Mutex
	tokens map[string]int64 // guarded by mu
}

var wallets = &store{tokens: map[string]int64{}}

func (s *store) Add(_ context.Context, uuid string, token int64, _ []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token <= s.tokens[uuid] {
		return fmt.Errorf("token %d of %s is old", token, uuid)
	}
	s.tokens[uuid] = token
	return nil
}

func locked(msg *message.Message) bool { return msg.UUID == "locked" }

func apply(*message.Message) error { return nil }

// TestDepositsOfAWalletAreHandledInOrder, one after another, and a handler that has lost its lease writes nothing more.
func TestDepositsOfAWalletAreHandledInOrder(t *testing.T) {
	s := fixture.New(t)
	first, second := "first of "+s.Topic, "second of "+s.Topic
	var late atomic.Pointer[message.Message]
	route(s, closeTimeout(fixture.Soon), func(msg *message.Message) error {
		if late.CompareAndSwap(nil, msg) {
			return errHandler // the next handler has a higher token
		}
		return deposit(msg)
	})
	for _, uuid := range []string{first, second} {
		msg := message.NewMessage(uuid, nil)
		// recipe: an ordering key
		redisdelay.SetOrderingKey(msg, "wallet-7")
		// end of recipe
		require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	}
	s.Settled()
	assert.Equal(t, first, late.Load().UUID)
	require.Error(t, deposit(late.Load()), "its token is old")
	assert.Positive(t, wallets.tokens[second])
}

// TestAMessageOfALockedResourceIsDeferred. A handler that returns the nil of Defer would lose the message.
func TestAMessageOfALockedResourceIsDeferred(t *testing.T) {
	s := fixture.New(t)
	route(s, closeTimeout(fixture.Soon), update)
	s.Publish("locked", "free")
	queue := s.Key("queue:default")
	require.Eventually(t, func() bool { return s.Client.ZCard(t.Context(), queue).Val() == 1 }, fixture.Soon, 5*time.Millisecond)
	waiting := s.Client.ZRangeWithScores(t.Context(), queue, 0, 0).Val()[0]
	assert.WithinDuration(t, s.Now().Add(10*time.Second), time.UnixMilli(int64(waiting.Score)), 5*time.Second)
	assert.Equal(t, "1/0/0", s.Client.HGet(t.Context(), s.Key("attempts:default"), waiting.Member.(string)).Val(), "no delivery")
}

// TestAPasswordIsDeliveredBeforeItExpires. An expired message is tested in TestAnExpiredMessageIsNotDelivered.
func TestAPasswordIsDeliveredBeforeItExpires(t *testing.T) {
	s := fixture.New(t)
	msg := message.NewMessage("password", nil)
	// recipe: an expiration
	redisdelay.SetExpiration(msg, time.Now().Add(5*time.Minute))
	// end of recipe
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	s.Expect(s.Subscribe(), "password")
	s.Settled()
}
