package acceptance

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func TestNothingIsDeliveredEarly(t *testing.T) {
	t.Parallel() // it mostly waits
	const each = 150
	delays := []time.Duration{1500 * time.Millisecond, 250 * time.Millisecond, 37 * time.Millisecond}
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 20 })

	var mu sync.Mutex
	due := map[string]time.Time{} // by Redis's clock, read before the delay was made
	var publishing sync.WaitGroup
	for i, d := range delays {
		for _, kind := range []string{"for", "until"} {
			publishing.Go(func() {
				for n := range each {
					uuid := fmt.Sprint(i, kind, n)
					mu.Lock()
					due[uuid] = s.Now().Add(d)
					mu.Unlock()
					made := delay.For(d)
					if kind == "until" {
						made = delay.Until(time.Now().Add(d))
					}
					msg := message.NewMessage(uuid, nil)
					delay.Message(msg, made)
					if err := p.Publish(s.Topic, msg); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	early := 0
	for range 2 * each * len(delays) {
		msg := s.Next(messages)
		now := s.Now()
		mu.Lock()
		if now.Before(due[msg.UUID]) {
			early++
			t.Errorf("%s was delivered %s early", msg.UUID, due[msg.UUID].Sub(now))
		}
		mu.Unlock()
		msg.Ack()
	}
	publishing.Wait()
	assert.Zero(t, early)
	s.Settled()
}
