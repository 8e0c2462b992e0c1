package main

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// fill publishes n messages with redisdelay, due tomorrow and numbered from 0.
func fill(ctx context.Context, l *lab, topic string, n int) error {
	const part = 100_000
	for first := 0; first < n; first += part {
		list := messagesFrom(first, min(part, n-first))
		for _, msg := range list {
			// After the number, the payload is random, because Redis would compress equal bytes in its files.
			copy(msg.Payload[8:], crand.Text()+crand.Text()+crand.Text()+crand.Text())
			tomorrow(msg)
		}
		if err := publishAll(ctx, l, topic, list); err != nil {
			return err
		}
	}
	return nil
}

// tomorrow makes a message due at a random second of tomorrow.
func tomorrow(msg *message.Message) {
	const day = 24 * 60 * 60
	delay.Message(msg, delay.For(time.Duration(day+rand.N(day))*time.Second))
}
