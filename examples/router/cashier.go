package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const rowFormat = "%7s  %-7s  %-14s  %11s  %8v  %5v  %s\n"

// cashier handles payments, with its own gateway that fails as the scenario says. It is
// safe for concurrent use.
type cashier struct {
	start time.Time
	done  chan struct{} // closed when each payment has ended

	mu    sync.Mutex
	files map[string]*file // guarded by mu; by payment id
	open  int              // guarded by mu; payments that have not ended
}

// file is the record of a payment.
type file struct {
	*payment
	calls    int
	attempts int
	outcome  outcome   // empty until it has ended
	failedAt time.Time // when the last delivery failed
	hasty    bool      // a delivery came before its delay was over
}

func newCashier(payments []*payment) *cashier {
	fmt.Printf(rowFormat, "time", "payment", "customer", "amount", "delivery", "calls", "what happened")
	fmt.Println(strings.Repeat("-", 100))
	c := &cashier{
		start: time.Now(),
		done:  make(chan struct{}),
		files: make(map[string]*file, len(payments)),
		open:  len(payments),
	}
	for _, p := range payments {
		c.files[p.ID] = &file{payment: p}
	}
	return c
}

// charge is the handler of payments. Retry may call it more than once for a
// delivery.
func (c *cashier) charge(msg *message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.file(msg)
	if err != nil {
		return &declinedError{err.Error()} // retrying will not help
	}
	if delivery, ok := redisdelay.DeliveryFromContext(msg.Context()); ok && delivery.Attempt > f.attempts {
		f.attempts = delivery.Attempt
		f.hasty = f.hasty || time.Since(f.failedAt) < pauseBefore(delivery.Attempt)
	}
	f.calls++
	if f.calls <= len(f.failures) {
		return f.failures[f.calls-1]
	}
	c.print(f, "paid")
	c.end(f, paid)
	return nil
}

// pauseBefore is how long a message should wait for its next delivery.
func pauseBefore(attempt int) time.Duration {
	if attempt == 1 {
		return 0
	}
	pause := firstDelay
	for range attempt - 2 {
		pause *= delayFactor
	}
	return pause
}

// report is a middleware that prints the errors that reach the router, which then nacks
// the message.
func (c *cashier) report(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err == nil {
			return produced, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if f, fileErr := c.file(msg); fileErr == nil {
			f.failedAt = time.Now()
			c.print(f, fmt.Sprintf("%v: again in %s", err, msg.Metadata.Get(delay.DelayedForKey)))
		}
		return produced, err
	}
}

// poisoned is the handler of payments that cannot succeed. A real one would alert a person.
func (c *cashier) poisoned(msg *message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.file(msg)
	if err != nil {
		fmt.Println("not a payment:", err)
		return nil
	}
	c.print(f, "in the poison queue: "+msg.Metadata.Get(middleware.ReasonForPoisonedKey))
	c.end(f, poisoned)
	return nil
}

// file finds the file of a payment. The caller holds mu.
func (c *cashier) file(msg *message.Message) (*file, error) {
	var p payment
	if err := json.Unmarshal(msg.Payload, &p); err != nil {
		return nil, fmt.Errorf("decode payment: %w", err)
	}
	f, ok := c.files[p.ID]
	if !ok {
		return nil, fmt.Errorf("payment %q is unknown", p.ID)
	}
	return f, nil
}

// print prints a line about a payment. The caller holds mu.
func (c *cashier) print(f *file, what string) {
	since := fmt.Sprintf("%.2f s", time.Since(c.start).Seconds())
	fmt.Printf(rowFormat, since, f.ID, f.Customer, f.Amount, f.attempts, f.calls, what)
}

// end records that a payment has ended. The caller holds mu.
func (c *cashier) end(f *file, as outcome) {
	if f.outcome == "" {
		if c.open--; c.open == 0 {
			close(c.done)
		}
	}
	f.outcome = as
}

// check returns an error that names the payments that did not end as they should.
func (c *cashier) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for id, f := range c.files {
		switch {
		case f.outcome != f.wantOutcome:
			errs = append(errs, fmt.Errorf("payment %s is %q, want %q", id, f.outcome, f.wantOutcome))
		case f.attempts != f.wantDeliveries:
			errs = append(errs, fmt.Errorf("payment %s took %d deliveries, want %d", id, f.attempts, f.wantDeliveries))
		case f.hasty:
			errs = append(errs, fmt.Errorf("payment %s was delivered again before its delay was over", id))
		}
	}
	if len(errs) == 0 {
		fmt.Printf("\nAll %d payments ended as they should.\n", len(c.files))
	}
	return errors.Join(errs...)
}
