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

// fill publishes n messages with redisdelay, numbered from 0, as fast as possible.
func fill(ctx context.Context, l *lab, topic string, n int, prepare func(msg *message.Message)) error {
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return err
	}
	err = inParts(ctx, n, func(part []*message.Message) error {
		for _, msg := range part {
			copy(msg.Payload[8:], noise[rand.N(len(noise)-payloadSize):])
			prepare(msg)
		}
		return publisher.Publish(topic, part...)
	})
	return errors.Join(err, publisher.Close())
}

// fillFloor does the same with the floor, for tomorrow.
func fillFloor(ctx context.Context, l *lab, topic string, n int) error {
	f := newFloor(l.client(), topic)
	return inParts(ctx, n, func(part []*message.Message) error {
		return f.push(ctx, untilTomorrow(), part)
	})
}

// inParts makes n messages, some goroutines at once, and passes them on in parts: so some make messages while others
// publish.
func inParts(ctx context.Context, n int, do func(part []*message.Message) error) error {
	const goroutines = 8
	firsts := make([]int, 0, n/callSize+1)
	for first := 0; first < n; first += callSize {
		firsts = append(firsts, first)
	}
	return inCalls(ctx, goroutines, 1, firsts, func(call []int) error {
		return do(messagesFrom(call[0], min(callSize, n-call[0])))
	})
}

// tomorrow makes a message due at any second of tomorrow.
func tomorrow(msg *message.Message) { delay.Message(msg, delay.For(untilTomorrow())) }

func untilTomorrow() time.Duration {
	const day = 24 * 60 * 60
	return time.Duration(day+rand.N(day)) * time.Second
}
