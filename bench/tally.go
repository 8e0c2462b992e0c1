package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

const payloadSize = 100

// payload returns 100 bytes that begin with the message's number.
func payload(number int) []byte {
	p := bytes.Repeat([]byte("x"), payloadSize)
	binary.BigEndian.PutUint64(p, uint64(number))
	return p
}

// newMessages makes messages with the numbers 0 to n-1.
func newMessages(n int) []*message.Message { return messagesFrom(0, n) }

// messagesFrom makes n messages, numbered from first.
func messagesFrom(first, n int) []*message.Message {
	list := make([]*message.Message, n)
	for i := range list {
		list[i] = message.NewMessage(watermill.NewUUID(), payload(first+i))
	}
	return list
}

// tally records which messages have arrived. It is safe for concurrent use, and fast enough for a
// measured loop.
type tally struct {
	arrivals   []atomic.Uint32 // how often each message arrived, by number
	unique     atomic.Int64
	duplicates atomic.Int64
	strangers  atomic.Int64  // messages that were not sent
	all        chan struct{} // closed when all have arrived
}

func newTally(n int) *tally {
	return &tally{arrivals: make([]atomic.Uint32, n), all: make(chan struct{})}
}

// add records an arrival and returns the message's number, -1 for an unknown one.
func (t *tally) add(payload []byte) int {
	if len(payload) != payloadSize {
		t.strangers.Add(1)
		return -1
	}
	number := binary.BigEndian.Uint64(payload)
	if number >= uint64(len(t.arrivals)) {
		t.strangers.Add(1)
		return -1
	}
	if t.arrivals[number].Add(1) > 1 {
		t.duplicates.Add(1)
	} else if t.unique.Add(1) == int64(len(t.arrivals)) {
		close(t.all)
	}
	return int(number)
}

// wait waits until all messages have arrived.
func (t *tally) wait(ctx context.Context) error {
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("messages are lost: only %d of %d arrived: %w", t.unique.Load(), len(t.arrivals), ctx.Err())
	}
}

// check fails if an unknown message arrived.
func (t *tally) check() error {
	if n := t.strangers.Load(); n > 0 {
		return fmt.Errorf("%d messages arrived that were not sent", n)
	}
	return nil
}
