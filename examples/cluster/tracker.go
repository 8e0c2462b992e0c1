package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	shipments   = 24
	events      = 24                     // of each shipment
	atKill      = 5                      // how many of them are published before the kill
	interval    = 400 * time.Millisecond // between events
	wait        = 300 * time.Millisecond // the delay of each
	shipmentKey = "shipment"             // in the metadata
)

// tracker publishes the events of shipments and records how they arrive. It is safe for
// concurrent use.
type tracker struct {
	publisher *redisdelay.Publisher
	topic     string
	start     time.Time

	mu        sync.Mutex
	awaited   map[string]event    // guarded by mu; by UUID
	shipments [shipments]shipment // guarded by mu
	last      time.Time           // guarded by mu; when an event was delivered
	shown     time.Time           // guarded by mu; when a line was printed

	published, delivered, early, unordered, duplicates int           // guarded by mu
	pause, pauseOfOne                                  time.Duration // guarded by mu; the longest
}

type event struct {
	shipment, number int
	published        time.Time // when Publish was called
}

type shipment struct {
	latest int       // event delivered
	last   time.Time // when that was
}

func newTracker(publisher *redisdelay.Publisher, topic string) *tracker {
	fmt.Printf("%d shipments with %d events each, delivered after %s.\n\n", shipments, events, wait)
	return &tracker{publisher: publisher, topic: topic, start: time.Now(), awaited: map[string]event{}}
}

// publish publishes some events of all shipments and returns the first error.
func (t *tracker) publish(ctx context.Context, from, to int) (err error) {
	published := make(chan error, shipments)
	for n := range shipments {
		go func() { published <- t.publishOf(ctx, n, from, to) }()
	}
	for range shipments {
		if e := <-published; err == nil {
			err = e
		}
	}
	return err
}

// publishOf publishes events of one shipment, each on time or, if late, as soon as the
// previous one is stored.
func (t *tracker) publishOf(ctx context.Context, shipment, from, to int) error {
	phase := interval * time.Duration(shipment) / shipments
	for number := from; number < to; number++ {
		select {
		case <-time.After(time.Until(t.start.Add(interval*time.Duration(number) + phase))):
		case <-ctx.Done():
			return ctx.Err()
		}
		delayed := delay.WithContext(ctx, delay.For(wait))
		msg := message.NewMessageWithContext(delayed, watermill.NewUUID(), nil)
		msg.Metadata.Set(shipmentKey, strconv.Itoa(shipment))
		t.mu.Lock()
		t.awaited[msg.UUID] = event{shipment, number, time.Now()}
		t.mu.Unlock()
		if err := t.publisher.Publish(t.topic, msg); err != nil {
			return err
		}
		t.mu.Lock()
		t.published++
		t.mu.Unlock()
	}
	return nil
}

// follow handles messages until all events have arrived, or the channel closes.
func (t *tracker) follow(messages <-chan *message.Message) {
	for msg := range messages {
		complete := t.note(msg.UUID, time.Now())
		msg.Ack()
		if complete {
			return
		}
	}
}

// note records a delivery, and reports whether it was the last.
func (t *tracker) note(uuid string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.awaited[uuid]
	if !ok { // delivery is at least once
		t.duplicates++
		return false
	}
	delete(t.awaited, uuid)
	s := &t.shipments[e.shipment]
	if now.Sub(e.published) < wait {
		t.early++
	}
	if e.number < s.latest {
		t.unordered++
	}
	if !s.last.IsZero() {
		t.pause = max(t.pause, now.Sub(t.last))
		t.pauseOfOne = max(t.pauseOfOne, now.Sub(s.last))
	}
	s.latest, s.last, t.last = max(s.latest, e.number), now, now
	t.delivered++
	if now.Sub(t.shown) > time.Second {
		t.print("")
	}
	return t.delivered == shipments*events
}

func (t *tracker) say(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.print(what)
}

// print prints the current state. The caller holds mu.
func (t *tracker) print(what string) {
	t.shown = time.Now()
	heldUp := 0
	for _, s := range t.shipments {
		if !s.last.IsZero() && s.latest < events-1 && t.shown.Sub(s.last) > time.Second {
			heldUp++
		}
	}
	line := fmt.Sprintf("%5.2f s  published %3d  delivered %3d  held up %2d  %s",
		t.shown.Sub(t.start).Seconds(), t.published, t.delivered, heldUp, what)
	fmt.Println(strings.TrimRight(line, " "))
}

// printSummary returns an error if an event came early, out of order or not at all.
func (t *tracker) printSummary() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	lost := t.published - t.delivered
	fmt.Printf("\n%-18s%7d\n", "published", t.published)
	fmt.Printf("%-18s%7d\n", "delivered", t.delivered)
	fmt.Printf("%-18s%7d\n", "early", t.early)
	fmt.Printf("%-18s%7d\n", "out of order", t.unordered)
	fmt.Printf("%-18s%7d\n", "lost", lost)
	fmt.Printf("%-18s%7d\n", "duplicates", t.duplicates)
	fmt.Printf("%-18s%5.2f s  of a shipment, %.2f s of all\n", "longest pause", t.pauseOfOne.Seconds(), t.pause.Seconds())
	if t.early > 0 || t.unordered > 0 || lost > 0 {
		return errors.New("events came early, out of order or not at all")
	}
	return nil
}
