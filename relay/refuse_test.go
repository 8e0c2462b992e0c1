package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// due publishes messages that are due when it returns.
func (s *scene) due(uuids ...string) {
	s.T.Helper()
	var call []*message.Message
	for _, uuid := range uuids {
		call = append(call, fixture.Delayed(uuid, time.Millisecond))
	}
	require.NoError(s.T, s.Publisher().Publish(s.Topic, call...))
	<-time.After(5 * time.Millisecond)
}

func numbers(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

// TestRefusedMessagesDoNotDelayOthers for long, although so many look like a target that is down.
func TestRefusedMessagesDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.target.rejecting(rejecting(numbers(40)...))
	s.due(numbers(45)...)
	s.run()
	s.until("the others are there", func() bool { return len(s.target.uuids()) == 5 })
	s.due("45")
	s.until("so is the next", func() bool { return len(s.target.uuids()) == 6 })
	assert.ElementsMatch(t, numbers(46)[40:], s.target.uuids())
	s.target.rejecting(nil)
	s.until("the target gets all messages", func() bool { return len(s.target.uuids()) == 46 })
}

// TestPermanentRefusalsMakeDeadMessages. They delay no other message, and do not look like a target that is down, however
// many there are.
func TestPermanentRefusalsMakeDeadMessages(t *testing.T) {
	t.Parallel()
	for name, rejected := range map[string]int{"many": 40, "one": 1} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.target.rejecting(rejecting(numbers(rejected)...))
			s.due(numbers(rejected)...)
			s.run(func(c *relay.Config) {
				c.Permanent = func(err error) bool { return strings.Contains(err.Error(), "rejected") }
			})
			entries := dead.Messages(s.Scene, rejected)
			assert.Regexp(t, `^rejected by the target: rejected: \d+$`, entries[0].Reason)
			s.due("good")
			s.gets("good")
			assert.Zero(t, s.Log.Count("The target takes"))
			s.target.rejecting(nil)
			assert.Equal(t, 1, dead.Requeue(s.Scene, entries[0].ID))
			s.until("the target gets it", func() bool { return len(s.target.uuids()) == 2 })
		})
	}
}

func TestRepeatedRefusalsMakeADeadMessageIfOthersSucceed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.target.rejecting(rejecting("bad"))
	s.due("bad")
	s.run(func(c *relay.Config) { c.MaxFailures = 2 })
	s.until("the target has rejected it more often", func() bool { return s.target.tried() > 3 })
	assert.Zero(t, s.Client.ZCard(t.Context(), s.Key("dead:relay")).Val(), "the target may be down")

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				s.due(fmt.Sprint(n))
			}
		}
	}()
	entries := dead.Messages(s.Scene, 1)
	close(stop)
	fixture.Wait(t, stopped, "the end")
	assert.Equal(t, "rejected 2 times by the target, which has taken others meanwhile: rejected: bad", entries[0].Reason)
}

func TestATargetThatIsDownDelaysOnlyItsTopic(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	other := &scene{s.Beside("/other"), s.target}
	down := func(topic string, _ []*message.Message) error {
		if topic == s.Topic {
			return errDown
		}
		return nil
	}
	s.target.rejecting(down)
	s.due(numbers(300)...)
	s.run(func(c *relay.Config) { c.Topics = []string{s.Topic, other.Topic} })
	s.until("the relay sees it", func() bool { return s.Log.Count("The target takes no messages") == 1 })
	other.due("x")
	other.gets("x")

	before, from := s.target.tried(), time.Now()
	<-time.After(1500 * time.Millisecond)
	tries, most := s.target.tried()-before, 12*(2+int(time.Since(from)/(300*time.Millisecond)))
	assert.Less(t, tries, most, "it does not spin")
	assert.Zero(t, s.Client.ZCard(t.Context(), s.Key("dead:relay")).Val())

	s.target.rejecting(nil)
	s.until("the target gets all messages", func() bool { return len(s.target.uuids()) == 301 })
	assert.Equal(t, 1, s.Log.Count("The target takes no messages"), "logged once")
	assert.Equal(t, 1, s.Log.Count("trying again: the target is down map"), "which tells the error once")
	assert.Equal(t, 1, s.Log.Count("The target takes messages of the topic again"))
}

// TestBatchesAreFullAgainAfterAnOutage, except the first one. Messages that were rejected are published alone.
func TestBatchesAreFullAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	const size, all = 30, 120
	s := newScene(t)
	s.target.rejecting(func(string, []*message.Message) error { return errDown })
	s.due(numbers(all)...)
	s.run(func(c *relay.Config) { c.BatchSize = size })
	s.until("all messages are postponed or rejected", func() bool {
		return s.Client.HLen(t.Context(), s.Key("attempts:relay")).Val() == all
	})
	s.target.rejecting(nil)
	before := s.target.tried()
	s.until("the target gets all messages", func() bool { return len(s.target.uuids()) == all })
	assert.Less(t, s.target.tried()-before, before+size+all/10)
}

func TestAPanicInPermanentDelaysNoMessage(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.target.rejecting(rejecting("bad"))
	s.due("bad", "good", "better")
	s.run(func(c *relay.Config) { c.Permanent = func(error) bool { panic("a fault of Permanent") } })
	s.gets("good", "better")
	s.target.rejecting(nil)
	s.gets("good", "better", "bad")
	assert.Positive(t, s.Log.Count("a fault of Permanent"))
}

func TestAPanicOfTheTargetCountsAsARefusal(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	first := true
	s.target.rejecting(func(string, []*message.Message) error {
		if first {
			first = false
			panic("a fault of the target")
		}
		return nil
	})
	s.due("m")
	s.run()
	s.gets("m")
	assert.Equal(t, 1, s.Log.Count("a fault of the target"))
}

// TestRunWaitsForARunningPublish, and releases messages that it has not begun to publish.
func TestRunWaitsForARunningPublish(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	began, end := make(chan struct{}), make(chan struct{})
	s.target.rejecting(func(string, []*message.Message) error {
		close(began)
		<-end
		return nil
	})
	s.due(numbers(3)...)
	stop := s.run(func(c *relay.Config) { c.BatchSize, c.CloseTimeout = 2, fixture.Soon })
	fixture.Wait(t, began, "a publish")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	s.until("it gives back the rest", func() bool {
		return s.Client.ZCard(t.Context(), s.Key("unack:relay")).Val() == 2
	})
	close(end)
	fixture.Wait(t, stopped, "the end")
	assert.Equal(t, []string{"0", "1"}, s.target.uuids())
	assert.EqualValues(t, 1, s.Client.HLen(t.Context(), s.Key("messages")).Val())
}
