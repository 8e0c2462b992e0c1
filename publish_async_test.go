package redisdelay_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// wire is a connection whose replies come late, or not at all.
type wire struct {
	redistest.Hook
	distance time.Duration
	lose     int64  // one in so many replies; 0 for none
	sending  func() // before each call; may be nil
	calls    atomic.Int64
	lost     atomic.Int64
}

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && w.sending != nil {
			w.sending()
		}
		err := next(ctx, cmd)
		if cmd.Name() != "evalsha" || err != nil {
			return err
		}
		<-time.After(w.distance)
		if w.lose > 0 && w.calls.Add(1)%w.lose == 0 {
			w.lost.Add(1)
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return nil
	}
}

// through returns a client whose calls go through a wire.
func through(t *testing.T, w *wire) *redis.Client {
	client := redistest.Client(t)
	client.AddHook(w)
	return client
}

func TestPublishAsyncStoresEachMessageOnceInOrder(t *testing.T) {
	t.Parallel()
	const messages = 1000
	for name, w := range map[string]*wire{
		"near":         {},
		"far":          {distance: 2 * time.Millisecond},
		"lost replies": {distance: time.Millisecond, lose: 2}, // a slow machine needs few calls
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = through(t, w) })
			payload, metadata := make([]byte, 4), message.Metadata{}
			for n := range messages {
				binary.BigEndian.PutUint32(payload, uint32(n))
				metadata["n"] = fmt.Sprint(n)
				p.PublishAsync(s.Topic, &message.Message{UUID: fmt.Sprint(n), Payload: payload, Metadata: metadata})
				if n%400 == 200 { // a Publish call keeps its place among them
					require.NoError(t, p.Publish(s.Topic, message.NewMessage("between", binary.BigEndian.AppendUint32(nil, uint32(n)))))
				}
			}
			require.NoError(t, p.Flush(t.Context()))
			assert.Zero(t, p.PublishAsyncPending())
			assert.Equal(t, w.lose > 0, w.lost.Load() > 0)
			received := s.Subscribe()
			for n := range messages {
				msg := s.Next(received)
				require.Equal(t, fmt.Sprint(n), msg.UUID)
				require.Equal(t, uint32(n), binary.BigEndian.Uint32(msg.Payload), "the caller changed it afterwards")
				require.Equal(t, fmt.Sprint(n), msg.Metadata["n"])
				msg.Ack()
				if n%400 == 200 {
					msg = s.Next(received)
					require.Equal(t, "between", msg.UUID)
					msg.Ack()
				}
			}
			s.Idle(received)
		})
	}
}

// rawMarshaler returns the payload itself.
type rawMarshaler struct{}

func (rawMarshaler) Marshal(_ string, msg *message.Message) ([]byte, error) { return msg.Payload, nil }

func (rawMarshaler) Unmarshal(_ string, body []byte) (*message.Message, error) {
	return message.NewMessage("", body), nil
}

func TestPublishAsyncCopiesBodiesThatTheMarshalerShares(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Marshaler, c.Client = rawMarshaler{}, through(t, &wire{distance: 5 * time.Millisecond})
	})
	payload := []byte("a")
	for range 100 { // most of them wait for the first
		p.PublishAsync(s.Topic, message.NewMessage("", payload))
	}
	copy(payload, "b")
	require.NoError(t, p.Flush(t.Context()))
	received := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.Unmarshaler = rawMarshaler{} })
	for range 100 {
		msg := s.Next(received)
		require.Equal(t, "a", string(msg.Payload))
		msg.Ack()
	}
}

// TestPublishCopiesBodiesThatTheMarshalerShares: a call to Redis may continue after Publish has returned, and is repeated for other
// messages of its batch.
func TestPublishCopiesBodiesThatTheMarshalerShares(t *testing.T) {
	t.Parallel()
	s, payload := fixture.New(t), []byte("a")
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Marshaler, c.Client = rawMarshaler{}, through(t, &wire{sending: func() { copy(payload, "b") }})
	})
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("", payload)))
	assert.Equal(t, []string{"a"}, s.Client.HVals(t.Context(), s.Key("messages")).Val())
}

func TestPublishAsyncRejectsTheSameInputAsPublish(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	late := message.NewMessage("late", nil)
	late.SetContext(over)
	for name, test := range map[string]struct {
		msg    *message.Message
		config func(*redisdelay.PublisherConfig)
	}{
		"nil":           {},
		"too large":     {msg: message.NewMessage("a", make([]byte, 4<<20))},
		"bad delay":     {msg: withMetadata("a", nil, delay.DelayedForKey, "30")},
		"bad key":       {msg: withMetadata("a", nil, redisdelay.KeyMetadata, "")},
		"ended context": {msg: late},
		"marshaler":     {msg: message.NewMessage("a", nil), config: func(c *redisdelay.PublisherConfig) { c.Marshaler = failingMarshaler{} }},
		"generator":     {msg: message.NewMessage("a", nil), config: refusingDelays},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			require.NoError(t, s.Client.Ping(t.Context()).Err(), "an error may say whether there is a connection yet")
			if test.config == nil {
				test.config = func(*redisdelay.PublisherConfig) {}
			}
			p := s.Publisher(test.config)
			future := p.PublishAsync(s.Topic, test.msg)
			select {
			case <-future.Done():
			default:
				require.Fail(t, "it is known at once")
			}
			want := p.Publish(s.Topic, test.msg)
			require.EqualError(t, future.Err(), want.Error())
			require.EqualError(t, p.Flush(t.Context()), want.Error())
			require.NoError(t, p.Flush(t.Context()))
			require.NoError(t, p.Close())
			assert.Empty(t, s.Kinds())
		})
	}
	p := fixture.New(t).Publisher()
	require.ErrorIs(t, p.PublishAsync("").Err(), redisdelay.ErrEmptyTopic)
	require.NoError(t, p.PublishAsync("t").Err(), "nothing to publish is no error")
	require.NoError(t, p.Close())
	assert.Equal(t, redisdelay.ErrPublisherClosed, p.PublishAsync("t", message.NewMessage("a", nil)).Err(), "the error itself")
}

func TestPublishAsyncReturnsPublicErrorTypes(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	key := s.Key("scheduled")
	require.NoError(t, s.Client.Set(t.Context(), key, "x", 0).Err())
	p := s.Publisher()
	future, hooked := p.PublishAsync(s.Topic, message.NewMessage("a", nil)), make(chan error, 1)
	future.OnDone(func(err error) { hooked <- err })
	for _, err := range []error{future.Wait(t.Context()), future.Err(), <-hooked, p.Flush(t.Context())} {
		var typeErr *redisdelay.WrongTypeError
		require.ErrorAs(t, err, &typeErr)
		assert.Equal(t, key, typeErr.Key)
	}
}

func TestCancellingAWaitDoesNotCancelTheCall(t *testing.T) {
	t.Parallel()
	s, w, answer := fixture.New(t), &wire{}, make(chan struct{})
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = through(t, w) })
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("opens the topic", nil)))
	w.sending = func() { <-answer }
	future := p.PublishAsync(s.Topic, message.NewMessage("a", nil))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, future.Wait(over), context.Canceled)
	close(answer)
	require.NoError(t, future.Wait(t.Context()))
}

func TestUncheckedAsyncErrorsAreLogged(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Observer.Published = func(observe.Published) { panic("oops") }
	})
	require.NoError(t, p.PublishAsync(s.Topic, message.NewMessage("a", nil)).Wait(t.Context()))
	require.ErrorIs(t, p.PublishAsync("", nil).Err(), redisdelay.ErrEmptyTopic)
	require.NoError(t, p.Close())
	assert.Equal(t, 1, s.Log.Count("has panicked"))
	assert.Equal(t, 1, s.Log.Count("Flush was not called since"))
}
