package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Found is where a message stands.
type Found struct {
	Partition int
	Now       time.Time
	ID        string
	Scheduled bool // no group has been given it yet
	DueAt     time.Time
	Size      int
	Body      []byte // nil if it is missing
	Groups    []FoundFor
}

// FoundFor is where a message stands for a group.
type FoundFor struct {
	Group    string
	State    State
	At       time.Time // its score; zero if it is done
	Score    string    // the same, as Redis writes it
	Fence    int64     // of its last claim; 0 if it was never claimed
	Attempts int       // deliveries that count, including one under way
	Seen     int       // of these, how many a handler has certainly seen
	Unsure   int       // and how many may have been lost with their consumers
	Reason   string
	Metadata []byte // as its last Nack left it
	// LeftOut says that it has Metadata, which would make the reply too large.
	LeftOut bool
}

// Look looks for a message in all partitions: by its id or, if that is "", by its key. Of several
// messages with the key it returns the one published last.
func (t *Topic) Look(ctx context.Context, id, key string) (Found, error) {
	var mu sync.Mutex
	best, missing := Found{}, ErrNotFound // guarded by mu
	err := t.Each(ctx, func(ctx context.Context, p *Partition) error {
		found, err := p.Look(ctx, id, key)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if err == nil && found.ID > best.ID {
			best, missing = found, nil
		}
		return err
	})
	if err == nil {
		err = missing
	}
	return best, err
}

// maxLooked is how many groups Look looks into, besides those that are registered or that refs
// names. A group that was retired long ago holds nothing any more.
const maxLooked = 1000

// Look looks for a message in the partition, as Topic.Look does.
func (p *Partition) Look(ctx context.Context, id, key string) (Found, error) {
	roster, err := p.Roster(ctx)
	if err != nil {
		return Found{}, err
	}
	names := append(roster.lately(maxLooked-len(roster.Groups)), roster.Groups...)
	for range 5 {
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		args := append([]any{id, key, maxReplyBytes}, anys(names)...)
		reply, err := p.run(ctx, lookScript, lookScript.keys(p.names, "", names), args)
		if err != nil {
			return Found{}, err
		}
		if len(reply) > 0 && reply[0] == "groups" {
			more, err := stringsOf(reply[1:])
			if err != nil {
				return Found{}, err
			}
			names = append(names, more...)
			continue
		}
		return p.parseFound(reply)
	}
	return Found{}, errGroupsKeepChanging
}

func (p *Partition) parseFound(reply []any) (Found, error) {
	r := reader{reply: reply}
	if r.text() == "none" {
		return Found{}, ErrNotFound
	}
	f := Found{Partition: p.number, Now: r.time(), ID: r.text(), DueAt: r.score(), Size: r.count(), Body: bytesOf(r.value())}
	f.Scheduled = !f.DueAt.IsZero()
	rows := reader{reply: r.list(), err: r.end()}
	for len(rows.reply) > 0 && rows.err == nil {
		one := FoundFor{Group: rows.text(), State: State(rows.text()), Score: rows.text()}
		entry := rows.text()
		one.Reason = rows.text()
		size := rows.count()
		one.Metadata = bytesOf(rows.value())
		one.LeftOut = size > 0 && one.Metadata == nil
		one.read(entry)
		f.Groups = append(f.Groups, one)
	}
	slices.SortFunc(f.Groups, func(a, b FoundFor) int { return strings.Compare(a.Group, b.Group) })
	return f, rows.err
}

// read reads the score and the attempts entry.
func (f *FoundFor) read(entry string) {
	if ms, err := msOf(f.Score); err == nil && f.Score != "" {
		f.At = time.UnixMilli(ms)
	}
	_, err := fmt.Sscanf(entry, "%d/%d/%d", &f.Fence, &f.Seen, &f.Unsure)
	if f.Attempts = f.Seen + f.Unsure; f.State == StateInDelivery { // a first claim leaves no entry
		f.Fence, f.Attempts = max(f.Fence, 1), max(f.Attempts, 1)
	}
	if err != nil && entry != "" { // garbled
		f.Fence = 1
	}
}

// Exhausted is why a claim makes a message a dead letter when it may be delivered so often, 0 for
// any number; "" if it does not. It says what lib.lua says.
func (f *FoundFor) Exhausted(maxDeliveries int) string {
	if maxDeliveries == 0 || f.Seen+f.Unsure < maxDeliveries {
		return ""
	}
	reason := fmt.Sprintf("not acked in %d deliveries", f.Seen)
	if f.Seen >= maxDeliveries {
		return reason
	}
	return reason + fmt.Sprintf(", and lost with its consumer %d times", f.Unsure)
}

// Holder is the id of the consumer whose last claim has got a delivery of a message; "" if
// that is not known: it has claimed others since. It looks at some 1,000 records.
func (g *Group) Holder(ctx context.Context, id string, fence int64) (string, error) {
	const steps = 100
	cursor := "0"
	for range steps {
		reply, err := g.run(ctx, holderScript, []any{cursor, id, strconv.FormatInt(fence, 10)})
		if err != nil {
			return "", err
		}
		r := reader{reply: reply}
		next, consumer := r.text(), r.text()
		if err := r.end(); err != nil {
			return "", fmt.Errorf("holder of %s: %w", id, err)
		}
		if consumer != "" || next == "0" {
			return consumer, nil
		}
		cursor = next
	}
	return "", nil
}
