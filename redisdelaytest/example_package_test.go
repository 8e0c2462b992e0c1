package redisdelaytest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

// Advance the virtual clock of a test by 30 minutes, which takes milliseconds.
func Example() {
	var t *testing.T // of your test
	synctest.Test(t, func(t *testing.T) {
		r := redisdelaytest.New(t)
		publisher, err := redisdelay.NewPublisher(r.PublisherConfig(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = publisher.Close() }()
		msg := message.NewMessage(watermill.NewUUID(), []byte("order 42"))
		delay.Message(msg, delay.For(30*time.Minute))
		if err := publisher.Publish("orders.close", msg); err != nil {
			t.Fatal(err)
		}
		r.Advance(30 * time.Minute)
		for _, pending := range r.Undelivered("orders.close") {
			fmt.Println(pending.Key, pending.DueAt)
		}
	})
}
