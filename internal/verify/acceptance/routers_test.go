package acceptance

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// These are programs that share one Subscriber among the handlers of a Router, and expect each
// handler to get all messages of its topic.

// TestAWebhookReachesEveryReceiver, each of which is a handler of the topic.
func TestAWebhookReachesEveryReceiver(t *testing.T) {
	s := fixture.New(t)
	router, sub, got := newRouter(s), s.Subscriber(broadcast), make(chan string, 100)
	var want []string
	for _, receiver := range []string{"mail", "chat", "audit"} {
		router.AddConsumerHandler(receiver, s.Topic, sub, func(msg *message.Message) error {
			got <- receiver + " " + msg.UUID
			return nil
		})
	}
	run(s, router)
	for i := range 10 {
		s.Publish(fmt.Sprint(i))
		want = append(want, fmt.Sprint("mail ", i), fmt.Sprint("chat ", i), fmt.Sprint("audit ", i))
	}
	assertGot(t, want, got)
}

// TestAPrintingHandlerTakesNothingFromTheOthers: it watches both ends of a handler that passes messages on.
func TestAPrintingHandlerTakesNothingFromTheOthers(t *testing.T) {
	s := fixture.New(t)
	router, sub, got := newRouter(s), s.Subscriber(broadcast), make(chan string, 100)
	onward := s.Topic + "/onward"
	router.AddHandler("struct", s.Topic, sub, onward, s.Publisher(), func(msg *message.Message) ([]*message.Message, error) {
		return message.Messages{message.NewMessage("onward "+msg.UUID, msg.Payload)}, nil
	})
	for name, topic := range map[string]string{"print incoming": s.Topic, "print outgoing": onward} {
		router.AddConsumerHandler(name, topic, sub, func(msg *message.Message) error {
			got <- name + " " + msg.UUID
			return nil
		})
	}
	run(s, router)
	var want []string
	for i := range 10 {
		s.Publish(fmt.Sprint(i))
		want = append(want, fmt.Sprint("print incoming ", i), fmt.Sprint("print outgoing onward ", i))
	}
	assertGot(t, want, got)
}

// assertGot wants these values, in any order, and no more that come soon.
func assertGot(t *testing.T, want []string, got <-chan string) {
	t.Helper()
	var all []string
	for range want {
		select {
		case value := <-got:
			all = append(all, value)
		case <-time.After(fixture.Soon):
			require.ElementsMatch(t, want, all, "messages are missing")
		}
	}
	assert.ElementsMatch(t, want, all)
}
