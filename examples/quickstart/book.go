package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// patience is how long after its due time a message counts as lost.
	patience = 3 * time.Second

	// lookout is how long the shop stays open after the last message, in case one comes
	// twice.
	lookout = 500 * time.Millisecond

	rowFormat = "%7s  %-6s  %-14s  %11s  %-42s  %8s\n"
)

var errBadDelivery = errors.New("messages came early or not at all")

// book records what happens to each order, as a shop's database would, and prints it. It
// is safe for concurrent use.
type book struct {
	start   time.Time
	settled chan struct{} // closed when each order is paid or closed

	mu      sync.Mutex
	entries map[string]*entry // guarded by mu; by order id
	open    int               // guarded by mu; orders that are neither paid nor closed
	lastDue time.Time         // guarded by mu; of all messages, by this host's clock
	early   int               // guarded by mu; deliveries before the due time
	worst   time.Duration     // guarded by mu; lateness
}

type entry struct {
	order
	due        time.Time // by Redis's clock
	paid       bool
	deliveries int
}

func newBook(orders int) *book {
	fmt.Printf(rowFormat, "time", "order", "customer", "amount", "what happened", "late")
	fmt.Println(strings.Repeat("-", 98))
	return &book{
		start:   time.Now(),
		settled: make(chan struct{}),
		entries: make(map[string]*entry, orders),
		open:    orders,
	}
}

// placed records an order whose message must not come before due.
func (b *book) placed(o order, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[o.ID] = &entry{order: o, due: due}
	if due := time.Now().Add(time.Duration(o.CloseAfter)); due.After(b.lastDue) {
		b.lastDue = due
	}
}

// paid records that the message of an order has been cancelled.
func (b *book) paid(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[id]
	if e.deliveries > 0 {
		// Cancel does not stop a handler that already has the message.
		b.print(e, "paid while being closed: refunded", "")
		return
	}
	e.paid = true
	b.print(e, fmt.Sprintf("paid after %s: message cancelled", e.PaidAfter), "")
	b.settle()
}

// paidTooLate records a payment that found no message to cancel.
func (b *book) paidTooLate(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[id]
	b.print(e, fmt.Sprintf("paid after %s: too late, refunded", e.PaidAfter), "")
}

// delivered records that the message of an order has arrived, at a time by Redis's clock.
// Whether that is early or late depends on what the shop asked for, not on what the
// message says.
func (b *book) delivered(id string, at time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[id]
	if !ok {
		return fmt.Errorf("order %q is not in the book", id)
	}
	late := at.Sub(e.due)
	b.worst = max(b.worst, late)
	if late < 0 {
		b.early++
	}
	e.deliveries++
	b.print(e, b.closeUnlessPaid(e), milliseconds(late))
	return nil
}

// closeUnlessPaid says what a message does to its order. The state of the order decides:
// delivery is at least once, so a message may come a second time, and Cancel does not stop
// a message that a handler already has.
func (b *book) closeUnlessPaid(e *entry) string {
	switch {
	case e.paid:
		return "paid at the last moment: left open"
	case e.deliveries > 1:
		return "redelivered: closed already"
	default:
		b.settle()
		return fmt.Sprintf("not paid in %s: closed, %d back in stock", e.CloseAfter, e.pieces())
	}
}

// settle records that one more order is paid or closed. The caller holds mu.
func (b *book) settle() {
	if b.open--; b.open == 0 {
		close(b.settled)
	}
}

// print prints a line about an order. The caller holds mu.
func (b *book) print(e *entry, what, late string) {
	since := fmt.Sprintf("%.2f s", time.Since(b.start).Seconds())
	fmt.Printf(rowFormat, since, e.ID, e.Customer, e.Amount+" "+e.Currency, what, late)
}

// wait returns when each order is paid or closed, or the last message is overdue.
func (b *book) wait(ctx context.Context) error {
	b.mu.Lock()
	overdue := time.NewTimer(time.Until(b.lastDue.Add(patience)))
	b.mu.Unlock()
	defer overdue.Stop()
	select {
	case <-b.settled:
		return sleep(ctx, lookout)
	case <-overdue.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// printSummary returns an error if messages came early or not at all.
func (b *book) printSummary() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var canceled, delivered, duplicates int
	for _, e := range b.entries {
		switch {
		case e.deliveries > 0:
			delivered++
			duplicates += e.deliveries - 1
		case e.paid:
			canceled++
		}
	}
	published := len(b.entries)
	lost := published - canceled - delivered

	fmt.Printf("\n%-18s%7d\n", "published", published)
	fmt.Printf("%-18s%7d\n", "cancelled (paid)", canceled)
	fmt.Printf("%-18s%7d\n", "delivered", delivered)
	fmt.Printf("%-18s%7d\n", "early", b.early)
	fmt.Printf("%-18s%7d\n", "lost", lost)
	fmt.Printf("%-18s%7d\n", "duplicates", duplicates)
	fmt.Printf("%-18s%7s\n", "worst lateness", milliseconds(b.worst))
	if b.early > 0 || lost > 0 {
		return errBadDelivery
	}
	return nil
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
}
