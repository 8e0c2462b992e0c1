package acceptance

import (
	"errors"
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
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// seldom makes a subscription one that polls never, as far as a test can tell. Only notifications, and what its claims
// say of what is next, make it look.
func seldom(c *subConfig) { c.PollInterval, c.MaxInFlight = time.Hour, 10 }

const shortLease = time.Second

var errDied = errors.New("the process is dead")

// idlers are a subscription that is idle, and one whose process may die.
type idlers struct {
	*fixture.Scene
	idle, victim <-chan *message.Message
	die          func()
}

// newIdlers starts the one that is idle first, so that it has to hear of what the other does.
func newIdlers(t *testing.T, limits redisdelay.GroupLimits) *idlers {
	t.Helper()
	s := fixture.New(t)
	limited := func(c *subConfig) { c.GroupLimits = limits }
	i := &idlers{Scene: s, idle: s.Subscribe(seldom, limited)}
	var died atomic.Bool
	i.die = func() { died.Store(true) }
	client := redistest.Shared(t).Client(t)
	client.AddHook(redistest.Failing{Err: func(redis.Cmder) error {
		if died.Load() {
			return errDied
		}
		return nil
	}})
	i.victim = s.Subscribe(limited, func(c *subConfig) {
		c.Client, c.LeaseDuration, c.CloseTimeout = client, shortLease, time.Millisecond
	})
	return i
}

// give publishes messages until the one that may die has got one of them; the idle one acks all that it gets.
func (i *idlers) give(msg func() *message.Message) (held *message.Message) {
	i.T.Helper()
	p := i.Publisher()
	for {
		require.NoError(i.T, p.Publish(i.Topic, msg()))
		select {
		case held = <-i.victim:
			return held
		case other := <-i.idle:
			other.Ack()
		case <-time.After(fixture.Soon):
			require.Fail(i.T, "nobody has got the message")
		}
	}
}

func plain(uuid string) func() *message.Message {
	return func() *message.Message { return message.NewMessage(uuid, nil) }
}

// TestTimeoutsWakeAnIdleConsumerThatNeverPolls: the ends of leases, pauses, limits and turns.
func TestTimeoutsWakeAnIdleConsumerThatNeverPolls(t *testing.T) {
	t.Parallel() // it mostly waits
	one := redisdelay.GroupLimits{MaxInFlight: 1}
	for name, scenario := range map[string]func(t *testing.T){
		"the lease of a dead consumer": func(t *testing.T) {
			i := newIdlers(t, redisdelay.GroupLimits{})
			i.give(plain("a"))
			<-time.After(3 * shortLease) // its lease has been extended
			i.die()
			i.Expect(i.idle, "a")
		},
		"the in-flight limit that a dead consumer uses up": func(t *testing.T) {
			i := newIdlers(t, one)
			i.give(plain("a"))
			i.Publish("b")
			i.die()
			i.Expect(i.idle, "a", "b")
		},
		"the turn of a dead consumer": func(t *testing.T) {
			i := newIdlers(t, redisdelay.GroupLimits{})
			i.give(func() *message.Message { return of("k", "a") })
			require.NoError(t, i.Publisher().Publish(i.Topic, of("k", "b")))
			i.Idle(i.idle)
			i.die()
			i.Expect(i.idle, "a", "b")
		},
		"an expired message, of a dead consumer": func(t *testing.T) {
			i := newIdlers(t, redisdelay.GroupLimits{})
			i.give(func() *message.Message {
				msg := message.NewMessage("a", nil)
				redisdelay.SetExpiration(msg, i.Now().Add(shortLease))
				return msg
			})
			i.die()
			assert.Equal(t, "expired", dead.Messages(i.Scene, 1)[0].Reason)
		},
		"a pause": func(t *testing.T) {
			s := fixture.New(t)
			messages := s.Subscribe(seldom)
			s.Idle(messages)
			require.NoError(t, newControl(t, s).PauseGroup(t.Context(), s.Topic, "default", redisdelay.Pause{For: time.Second}))
			s.Publish("a")
			s.Idle(messages)
			s.Expect(messages, "a")
		},
		"a rate": func(t *testing.T) {
			s := fixture.New(t)
			messages := s.Subscribe(seldom, func(c *subConfig) {
				c.GroupLimits.Rate = redisdelay.Rate{Messages: 2, Burst: 1}
			})
			s.Publish("a", "b", "c")
			s.Expect(messages, "a", "b", "c")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			scenario(t)
		})
	}
}

func TestChangesWakeAnIdleConsumerThatNeverPolls(t *testing.T) {
	t.Parallel() // it mostly waits
	hour := func(uuid string) *message.Message { return fixture.Keyed(uuid, uuid, time.Hour) }
	for name, scenario := range map[string]func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message){
		"resume both pauses": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			c := newControl(t, s)
			for _, group := range []string{"default", redisdelay.AllGroups} {
				require.NoError(t, c.PauseGroup(t.Context(), s.Topic, group, redisdelay.Pause{}))
			}
			s.Publish("a")
			require.NoError(t, c.ResumeGroup(t.Context(), s.Topic, "default"))
			s.Idle(messages)
			require.NoError(t, c.ResumeGroup(t.Context(), s.Topic, redisdelay.AllGroups))
			s.Expect(messages, "a")
		},
		"shorten a pause": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			c := newControl(t, s)
			require.NoError(t, c.PauseGroup(t.Context(), s.Topic, "default", redisdelay.Pause{}))
			s.Publish("a")
			s.Idle(messages)
			require.NoError(t, c.PauseGroup(t.Context(), s.Topic, "default", redisdelay.Pause{For: 100 * time.Millisecond}))
			s.Expect(messages, "a")
		},
		"raise a rate": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			c := newControl(t, s)
			slow := redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: 1, Per: time.Hour}}
			require.NoError(t, c.LimitGroup(t.Context(), s.Topic, "default", slow))
			s.Publish("a", "b")
			s.Expect(messages, "a")
			s.Idle(messages)
			slow.Rate.Per = time.Second
			require.NoError(t, c.LimitGroup(t.Context(), s.Topic, "default", slow))
			s.Expect(messages, "b")
		},
		"ack at the in-flight limit": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			require.NoError(t, newControl(t, s).LimitGroup(t.Context(), s.Topic, "default", redisdelay.GroupLimits{MaxInFlight: 1}))
			other := s.Subscriber()
			second, err := other.Subscribe(t.Context(), s.Topic)
			require.NoError(t, err)
			s.Publish("a", "b")
			for range 2 {
				select {
				case msg := <-messages:
					msg.Ack()
				case msg := <-second:
					msg.Ack()
				case <-time.After(fixture.Soon):
					require.Fail(t, "nothing comes")
				}
			}
		},
		"nack, then close": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			other := s.Subscriber(func(c *subConfig) { c.NackDelay = func(int) time.Duration { return time.Second } })
			second, err := other.Subscribe(t.Context(), s.Topic)
			require.NoError(t, err)
			i := &idlers{Scene: s, idle: messages, victim: second}
			i.give(plain("a")).Nack()
			require.NoError(t, other.Close())
			s.Expect(messages, "a")
		},
		"close with an undelivered message": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			other := s.Subscriber()
			second, err := other.Subscribe(t.Context(), s.Topic)
			require.NoError(t, err)
			i := &idlers{Scene: s, idle: messages, victim: second}
			held := i.give(plain("a"))
			other.Stop()
			held.Nack()
			require.NoError(t, other.Close())
			s.Expect(messages, "a")
		},
		"reschedule": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			p := s.Publisher()
			require.NoError(t, p.Publish(s.Topic, hour("a"), hour("b")))
			s.Idle(messages)
			_, err := p.Reschedule(t.Context(), s.Topic, "b", delay.For(100*time.Millisecond))
			require.NoError(t, err)
			s.Expect(messages, "b")
		},
		"cancel the first": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			p := s.Publisher()
			require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "a", 500*time.Millisecond), fixture.Keyed("b", "b", time.Second)))
			_, err := p.Cancel(t.Context(), s.Topic, "a")
			require.NoError(t, err)
			s.Expect(messages, "b")
		},
		"cancel the message whose turn it is": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			p := s.Publisher()
			first := of("k", "a")
			redisdelay.SetKey(first, "a")
			require.NoError(t, p.Publish(s.Topic, first, of("k", "b")))
			held := s.Next(messages)
			_, err := p.Cancel(t.Context(), s.Topic, "a")
			require.NoError(t, err)
			s.Expect(messages, "b")
			held.Ack()
		},
		"requeue a dead message": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			failing := s.Subscribe(group("g"), seldom, func(c *subConfig) { c.MaxDeliveries = 1 })
			s.Publish("a")
			s.Expect(messages, "a")
			s.Next(failing).Nack()
			entry := dead.Messages(s, 1)[0]
			s.Idle(failing)
			assert.Equal(t, 1, dead.Requeue(s, entry.ID))
			s.Expect(failing, "a")
		},
		"register another group": func(t *testing.T, s *fixture.Scene, messages <-chan *message.Message) {
			require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Delayed("a", time.Second)))
			later := s.Subscribe(group("later"), seldom)
			s.Expect(messages, "a")
			s.Expect(later, "a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			s := fixture.New(t)
			messages := s.Subscribe(seldom)
			s.Idle(messages)
			scenario(t, s, messages)
		})
	}
}
