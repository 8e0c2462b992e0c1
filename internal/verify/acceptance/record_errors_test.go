package acceptance

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var errMailbox = errors.New("smtp: 550 mailbox full")

func failsWith(err error) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { return nil, err }
}

// handled lets a handler handle a message as a router does, panics included.
func handled(h message.HandlerFunc, msg *message.Message) {
	defer func() {
		if recover() != nil {
			msg.Nack()
		}
	}()
	if _, err := h(msg); err != nil {
		msg.Nack()
	} else {
		msg.Ack()
	}
}

// attempts is a change of a subscriber's config: so many deliveries, soon after each other.
func attempts(n int) func(*subConfig) {
	return func(c *subConfig) { c.MaxDeliveries, c.NackDelay = n, func(int) time.Duration { return 0 } }
}

// TestARecordedErrorStaysWithItsMessage in all places that show it, until the ack.
func TestARecordedErrorStaysWithItsMessage(t *testing.T) {
	s, reported := fixture.New(t), make(chan string, 10)
	messages := s.Subscribe(attempts(2), func(c *subConfig) {
		c.Observer.Settled = func(e observe.Settled) { reported <- e.Error }
	})
	s.Publish("a")
	msg := s.Next(messages)
	id := fixture.Delivery(t, msg).ID
	handled(redisdelay.RecordErrors(failsWith(errMailbox)), msg)

	msg = s.Next(messages)
	assert.Equal(t, errMailbox.Error(), fixture.Delivery(t, msg).LastError)
	assert.Empty(t, msg.Metadata, "handlers do not see it, nor publish it again")
	assert.Equal(t, "payload of a", string(msg.Payload))
	handled(redisdelay.RecordErrors(failsWith(errors.New("smtp: 421 try again"))), msg)
	entry := dead.Messages(s, 1)[0]
	assert.Equal(t, "not acked in 2 deliveries: smtp: 421 try again", entry.Reason)
	assert.Equal(t, "smtp: 421 try again", entry.Content.LastError)
	assert.Empty(t, entry.Content.Message.Metadata)
	for reason, want := range map[string]int{"421 try": 1, "550": 0} {
		n, err := dead.Admin(s).Count(t.Context(), s.Topic, admin.Query{Set: admin.Dead, Reason: reason})
		require.NoError(t, err)
		assert.Equal(t, want, n, reason)
	}
	assert.Equal(t, []string{"smtp: 550 mailbox full", "smtp: 421 try again"}, []string{<-reported, <-reported})

	require.Equal(t, 1, dead.Requeue(s, id))
	msg = s.Next(messages)
	assert.Equal(t, "smtp: 421 try again", fixture.Delivery(t, msg).LastError)
	handled(redisdelay.RecordErrors(failsWith(nil)), msg)
	s.Settled()
}

// TestRecordErrorsWorksAtAnyPosition among Watermill's middlewares, the first of which is the outermost.
func TestRecordErrorsWorksAtAnyPosition(t *testing.T) {
	t.Parallel() // it mostly waits
	record := redisdelay.RecordErrors
	retry := middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond, ResetContextOnRetry: true}.Middleware
	timeout := middleware.Timeout(time.Minute)
	onError := (&middleware.DelayOnError{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, Multiplier: 1}).Middleware
	panics := func(*message.Message) ([]*message.Message, error) { panic("boom") }
	type stack = []message.HandlerMiddleware
	const mailbox, boom = "smtp: 550 mailbox full", `panic occurred: "boom"`
	tests := map[string]struct {
		stack stack
		h     message.HandlerFunc
		want  string
	}{
		"alone":                          {stack{record}, failsWith(errMailbox), mailbox},
		"inside Recoverer":               {stack{middleware.Recoverer, record}, panics, "panic: boom"},
		"outside Retry, with a panic":    {stack{record, retry, timeout, middleware.Recoverer}, panics, boom},
		"inside Retry and Timeout":       {stack{retry, timeout, record}, failsWith(errMailbox), mailbox},
		"inside DelayOnError":            {stack{onError, record}, failsWith(errMailbox), mailbox},
		"inside IgnoreErrors that fails": {stack{middleware.NewIgnoreErrors([]error{assert.AnError}).Middleware, record}, failsWith(errMailbox), mailbox},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			messages := s.Subscribe(attempts(2))
			s.Publish("a")
			h := test.h
			for i := len(test.stack) - 1; i >= 0; i-- {
				h = test.stack[i](h)
			}
			handled(h, s.Next(messages))
			msg := s.Next(messages)
			assert.Equal(t, test.want, fixture.Delivery(t, msg).LastError)
			handled(h, msg)
			assert.Equal(t, "not acked in 2 deliveries: "+test.want, dead.Messages(s, 1)[0].Reason)
		})
	}
}

// TestAnErrorHiddenByAMiddlewareIsForgotten: the message is acked, and messages that are published from it have no error.
func TestAnErrorHiddenByAMiddlewareIsForgotten(t *testing.T) {
	for name, outermost := range map[string]bool{"outside PoisonQueue": true, "inside PoisonQueue": false} {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			poisoned := s.Beside("/poison")
			poison, err := middleware.PoisonQueue(s.Publisher(), poisoned.Topic)
			require.NoError(t, err)
			h := poison(redisdelay.RecordErrors(failsWith(errMailbox)))
			if outermost {
				h = redisdelay.RecordErrors(poison(failsWith(errMailbox)))
			}
			messages, poisonedMessages := s.Subscribe(attempts(3)), poisoned.Subscribe()
			s.Publish("a")
			handled(redisdelay.RecordErrors(failsWith(assert.AnError)), s.Next(messages))
			handled(h, s.Next(messages))
			s.Settled()
			msg := s.Next(poisonedMessages)
			assert.Equal(t, errMailbox.Error(), msg.Metadata.Get(middleware.ReasonForPoisonedKey))
			assert.Empty(t, fixture.Delivery(t, msg).LastError)
			for _, value := range msg.Metadata {
				assert.NotEqual(t, assert.AnError.Error(), value)
			}
			msg.Ack()
		})
	}
}

// TestARecordedErrorIsBoundedValidText, also if its Error method panics.
func TestARecordedErrorIsBoundedValidText(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.NackDelay = func(int) time.Duration { return 0 } })
	s.Publish("a")
	for text, want := range map[string]string{
		"":                                   "",
		"\xff\xfe bad \x00":                  "? bad \x00",
		"  wide\n":                           "wide",
		strings.Repeat("x", 1<<20):           strings.Repeat("x", redisdelay.MaxReasonBytes),
		strings.Repeat("ä", 1<<10):           strings.Repeat("ä", redisdelay.MaxReasonBytes/2),
		"x" + strings.Repeat("ä", 1<<10):     "x" + strings.Repeat("ä", redisdelay.MaxReasonBytes/2-1),
		"bad: b\nand a second line: 5 of 10": "bad: b\nand a second line: 5 of 10",
	} {
		msg := s.Next(messages)
		fixture.Delivery(t, msg).RecordError(errors.New("before"))
		fixture.Delivery(t, msg).RecordError(errors.New(text))
		msg.Nack()
		msg = s.Next(messages)
		if last := fixture.Delivery(t, msg).LastError; want != "" {
			assert.Equal(t, want, last)
			assert.True(t, utf8.ValidString(last))
		}
		msg.Nack()
	}
	msg := s.Next(messages)
	fixture.Delivery(t, msg).RecordError((*nilError)(nil))
	msg.Nack()
	msg = s.Next(messages)
	assert.Equal(t, "<nil>", fixture.Delivery(t, msg).LastError)
	fixture.Delivery(t, msg).RecordError(errors.New("taken back"))
	fixture.Delivery(t, msg).RecordError(nil)
	msg.Nack()
	msg = s.Next(messages)
	assert.Equal(t, "<nil>", fixture.Delivery(t, msg).LastError, "the one before")
	msg.Ack()
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }
