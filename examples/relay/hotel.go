package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

const rowFormat = "%-18s  %-12s  %10s  %9s\n"

var (
	errEarly   = errors.New("a mail came before its delay was over")
	errTwice   = errors.New("a mail came twice")
	errMissing = errors.New("mails are missing")
)

// guest is a person who has booked a room.
type guest struct {
	name        string
	remindAfter time.Duration
}

func guests() []guest {
	return []guest{
		{"Ada Lovelace", 1500 * time.Millisecond},
		{"Grace Hopper", 500 * time.Millisecond},
		{"Hedy Lamarr", 2 * time.Second},
		{"Mary Jackson", 250 * time.Millisecond},
		{"Radia Perlman", time.Second},
	}
}

// mail is the message.
type mail struct {
	To     string        `json:"to"`
	Text   string        `json:"text"`
	SentAt time.Time     `json:"sent_at"`
	Delay  time.Duration `json:"delay"`
}

// hotel sends mails and receives them. It is for one goroutine.
type hotel struct {
	topic    string
	expected int
	received map[string]bool // by receiver and text
}

func newHotel(topic string) *hotel {
	return &hotel{topic: topic, expected: 2 * len(guests()), received: map[string]bool{}}
}

// run books the guests' rooms and returns when all mails have arrived, or with an error.
func (h *hotel) run(ctx context.Context, publisher message.Publisher, subscriber message.Subscriber) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	mails, err := subscriber.Subscribe(ctx, h.topic)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	booked := make(chan error, 1)
	go func() { booked <- book(ctx, publisher, h.topic) }() // ends by itself
	fmt.Printf(rowFormat, "to", "mail", "asked for", "late")
	for len(h.received) < h.expected {
		select {
		case msg, open := <-mails:
			if !open {
				return fmt.Errorf("%w: the subscriber has ended", errMissing)
			}
			if err := h.receive(msg); err != nil {
				return err
			}
			msg.Ack()
		case <-ctx.Done():
			return fmt.Errorf("%w: %d", errMissing, h.expected-len(h.received))
		}
	}
	fmt.Printf("\nAll %d mails have arrived.\n", h.expected)
	return <-booked
}

// book sends each guest a confirmation and, with a delay, a reminder. One call may have
// messages of both kinds.
func book(ctx context.Context, publisher message.Publisher, topic string) error {
	for _, g := range guests() {
		confirmation, err := newMessage(ctx, mail{To: g.name, Text: "confirmation"})
		if err != nil {
			return err
		}
		reminder, err := newMessage(ctx, mail{To: g.name, Text: "reminder", Delay: g.remindAfter})
		if err != nil {
			return err
		}
		if err := publisher.Publish(topic, confirmation, reminder); err != nil {
			return fmt.Errorf("book for %s: %w", g.name, err)
		}
	}
	return nil
}

func newMessage(ctx context.Context, m mail) (*message.Message, error) {
	m.SentAt = time.Now()
	payload, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode mail to %s: %w", m.To, err)
	}
	msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), payload)
	if m.Delay > 0 {
		delay.Message(msg, delay.For(m.Delay))
	}
	return msg, nil
}

func (h *hotel) receive(msg *message.Message) error {
	var m mail
	if err := json.Unmarshal(msg.Payload, &m); err != nil {
		return fmt.Errorf("decode mail: %w", err)
	}
	late := time.Since(m.SentAt) - m.Delay
	fmt.Printf(rowFormat, m.To, m.Text, m.Delay, late.Round(time.Millisecond))
	name := m.Text + " to " + m.To
	switch {
	case late < 0:
		return fmt.Errorf("%w: %s", errEarly, name)
	case h.received[name]:
		return fmt.Errorf("%w: %s", errTwice, name)
	}
	h.received[name] = true
	return nil
}
