package acceptance

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestPublishCanBeRetriedAfterAnUnknownOutcome although the message was stored by the
// first call and has been handled since.
func TestPublishCanBeRetriedAfterAnUnknownOutcome(t *testing.T) {
	s := fixture.New(t)
	client := redistest.Shared(t).Client(t)
	client.AddHook(&secondAnswer{text: "ERR Protocol error: invalid bulk length", always: true})
	publisher := func(changes ...func(*redisdelay.PublisherConfig)) *redisdelay.Publisher {
		return s.Publisher(append(changes, func(c *redisdelay.PublisherConfig) { c.DeduplicationWindow = time.Hour })...)
	}
	unlucky := publisher(func(c *redisdelay.PublisherConfig) { c.Client = client })
	require.ErrorIs(t, unlucky.Publish(s.Topic, fixture.Keyed("a", "k", 0)), redisdelay.ErrOutcomeUnknown)
	messages := s.Subscribe()
	s.Expect(messages, "a")

	err := publisher().Publish(s.Topic, fixture.Keyed("a", "k", 0))
	require.ErrorIs(t, err, redisdelay.ErrDuplicateMessage)
	assert.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
	ignoring := publisher(func(c *redisdelay.PublisherConfig) { c.OnDuplicate = redisdelay.IgnoreDuplicate })
	require.NoError(t, ignoring.Publish(s.Topic, fixture.Keyed("a", "k", 0)))
	s.Idle(messages)
}

// publishesThenFails is a publisher whose first call fails after it has published.
type publishesThenFails struct {
	message.Publisher
	calls atomic.Int64
}

func (p *publishesThenFails) Publish(topic string, messages ...*message.Message) error {
	if err := p.Publisher.Publish(topic, messages...); err != nil || p.calls.Add(1) > 1 {
		return err
	}
	return errors.New("no answer")
}

// TestAHandlerOfARouterPublishesEachStepOnce when its message is redelivered.
func TestAHandlerOfARouterPublishesEachStepOnce(t *testing.T) {
	s := fixture.New(t)
	invoices := s.Beside("/invoices")
	once, err := onceOnly(s.Client)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, once.Close()) })
	publisher := &publishesThenFails{Publisher: once}
	arrived := invoices.Subscribe()
	router := newRouter(s)
	router.AddHandler("h", s.Topic, s.Subscriber(), invoices.Topic, publisher, invoiceOrder)
	run(s, router)
	s.Publish("order")
	msg := s.Next(arrived)
	assert.Equal(t, "payload of order", string(msg.Payload))
	msg.Ack() // before the handler publishes it again
	s.Settled()
	assert.Equal(t, int64(2), publisher.calls.Load())
	s.Idle(arrived)
}
