package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// chain is the job of a consumer that publishes each handled message to the next topic, under the
// key of that step.
type chain struct {
	Topics []string
	Window time.Duration
	Step   string // empty: the messages have no keys
}

// relay runs the consumers of all topics of a chain except the last.
func (j job) relay(ctx context.Context, client redis.UniversalClient, report func(Event)) error {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client: client, OnDuplicate: redisdelay.IgnoreDuplicate, DeduplicationWindow: j.Chain.Window,
	}, j.logger)
	if err != nil {
		return err
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, ConsumerGroup: j.Group, LeaseDuration: j.Lease, MaxInFlight: j.MaxInFlight,
	}, j.logger)
	if err != nil {
		return errors.Join(err, publisher.Close())
	}
	var links sync.WaitGroup
	for i, next := range j.Chain.Topics[1:] {
		messages, err := subscriber.Subscribe(ctx, j.Chain.Topics[i])
		if err != nil {
			return errors.Join(err, subscriber.Close(), publisher.Close())
		}
		links.Go(func() { // ends with ctx
			for msg := range messages {
				links.Go(func() { j.pass(publisher, next, msg, report) })
			}
		})
	}
	links.Wait()
	return errors.Join(subscriber.Close(), publisher.Close())
}

// pass handles one message. After a kill between Publish and Ack, another consumer handles it again.
func (j job) pass(publisher message.Publisher, topic string, msg *message.Message, report func(Event)) {
	d, _ := redisdelay.DeliveryFromContext(msg.Context())
	report(Event{Kind: Delivered, UUID: string(msg.Payload), ID: d.ID, Group: j.Group, Token: d.Token})
	next := message.NewMessage(watermill.NewUUID(), msg.Payload)
	if j.Chain.Step != "" {
		redisdelay.SetKey(next, d.StepKey(j.Chain.Step))
	}
	if err := publisher.Publish(topic, next); err != nil {
		msg.Nack()
		return
	}
	<-time.After(j.Handling)
	msg.Ack()
}

// TestAChainOfTopicsStoresEachLastMessageOnce although its consumers are killed, so that handlers
// publish messages that were published before.
func TestAChainOfTopicsStoresEachLastMessageOnce(t *testing.T) {
	onlyInFull(t)
	s := newScene(t)
	topics := []string{s.Topic + "/1", s.Topic + "/2", s.Topic + "/3"}
	relay := s.job(func(j *job) {
		j.Lease, j.MaxInFlight, j.Handling = 300*time.Millisecond, 5, 50*time.Millisecond
		j.Chain = chain{Topics: topics, Window: 10 * time.Minute, Step: "next"}
	})
	consumers := make([]*process, 4)
	for i := range consumers {
		consumers[i] = spawn(t, relay, s.history)
	}
	publisher := s.Publisher()
	kills, each := 100, 30
	for n := range kills {
		var call []*message.Message
		for i := range each {
			call = append(call, message.NewMessage(watermill.NewUUID(), fmt.Appendf(nil, "%d-%d", n, i)))
		}
		require.NoError(t, publisher.Publish(topics[0], call...))
		<-time.After(time.Duration(50+rand.IntN(100)) * time.Millisecond)
		i := rand.IntN(len(consumers))
		consumers[i].kill()
		consumers[i] = spawn(t, relay, s.history)
	}
	for _, topic := range topics[:2] {
		s.on(topic).drained()
		require.Empty(t, s.on(topic).bodies(), "left in %s", topic)
	}
	stop(consumers)
	s.on(topics[2]).eachOnce(kills * each)
	s.publishedAgain(kills * each)
}

// on returns the same scene with another topic.
func (s *scene) on(topic string) *scene {
	other, inside := *s, *s.Scene
	other.Scene, inside.Topic = &inside, topic
	return &other
}

// eachOnce asserts that a topic has this many messages, each payload and each key once.
func (s *scene) eachOnce(count int) {
	s.T.Helper()
	bodies, err := s.Client.HGetAll(s.T.Context(), s.Key("messages")).Result()
	require.NoError(s.T, err)
	payloads, keys := map[string]int{}, map[string]int{}
	for id, body := range bodies {
		msg, err := redisdelay.DefaultMarshaler{}.Unmarshal(s.Topic, []byte(body))
		require.NoError(s.T, err)
		payloads[string(msg.Payload)]++
		_, key, _ := strings.Cut(id, ":")
		keys[key]++
	}
	twice := 0
	for _, n := range payloads {
		twice += n - 1
	}
	s.T.Logf("%d messages are stored, of %d published, %d of them again", len(bodies), count, twice)
	require.Len(s.T, payloads, count, "messages that are not lost")
	require.Zero(s.T, twice, "messages that are stored again")
	require.Len(s.T, keys, count)
}

// publishedAgain asserts that handlers had to publish messages again.
func (s *scene) publishedAgain(count int) {
	s.T.Helper()
	deliveries := len(s.history.Events())
	s.T.Logf("%d deliveries of %d messages in two topics", deliveries, count)
	require.Greater(s.T, deliveries, 2*count+count/100, "killed consumers have left messages")
}
