package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// noise is what payloads have after their numbers where Redis writes a file: equal letters would be compressed to
// nothing.
var noise = func() string {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	var text strings.Builder
	for range 1 << 16 {
		text.WriteByte(letters[rand.N(len(letters))])
	}
	return text.String()
}()

// fill publishes n messages with redisdelay, numbered from 0, as fast as possible: some goroutines make messages
// while others publish.
func fill(ctx context.Context, l *lab, topic string, n int, prepare func(msg *message.Message)) error {
	const goroutines = 8
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return err
	}
	firsts := make([]int, 0, n/callSize+1)
	for first := 0; first < n; first += callSize {
		firsts = append(firsts, first)
	}
	err = inCalls(ctx, goroutines, 1, firsts, func(call []int) error {
		list := messagesFrom(call[0], min(callSize, n-call[0]))
		for _, msg := range list {
			copy(msg.Payload[8:], noise[rand.N(len(noise)-payloadSize):])
			prepare(msg)
		}
		return publisher.Publish(topic, list...)
	})
	return errors.Join(err, publisher.Close())
}

// tomorrow makes a message due at any second of tomorrow.
func tomorrow(msg *message.Message) {
	const day = 24 * 60 * 60
	delay.Message(msg, delay.For(time.Duration(day+rand.N(day))*time.Second))
}
