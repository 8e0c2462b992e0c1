package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Found is the state of a message.
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

// FoundFor is the state of a message for a group.
type FoundFor struct {
	Group    string
	State    queue.State
	At       time.Time // its score, for one in line its due time; zero if it is done
	Score    string    // as it is in Redis
	InLine   bool      // due, and waits in line for its ordering key
	Token    int64     // of its last claim; 0 if it was never claimed
	Attempts int       // deliveries that count, including one under way
	Seen     int       // the part of Attempts that a handler has certainly seen
	Unsure   int       // the part of Attempts that may have been lost with their consumers
	Reason   string
	Metadata []byte // of its last Nack
	// LeftOut says that Metadata exist but are not read, because the reply would be too large.
	LeftOut bool
}

// Locate finds a message in all partitions: by its id or, if that is "", by its key. Of several
// messages with the key it returns the one published last.
func Locate(ctx context.Context, t *queue.Topic, id, key string) (Found, error) {
	var mu sync.Mutex
	best, missing := Found{}, queue.ErrNotFound // guarded by mu
	err := t.Each(ctx, func(ctx context.Context, p *queue.Partition) error {
		found, err := LocateIn(ctx, p, id, key)
		if errors.Is(err, queue.ErrNotFound) {
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

// maxGroupsRead is the number of groups that Locate reads: all registered groups, then those that were retired last. A
// group that was retired long ago has no messages.
const maxGroupsRead = 2 * queue.MaxGroups

// LocateIn is Locate in one partition.
func LocateIn(ctx context.Context, p *queue.Partition, id, key string) (Found, error) {
	groupList, err := ReadGroupList(ctx, p)
	if err != nil {
		return Found{}, err
	}
	names := append(groupList.lately(maxGroupsRead-len(groupList.Groups)), groupList.Groups...)
	for range 5 {
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		args := append([]any{id, key, queue.MaxReplyBytes}, script.Strings(names)...)
		reply, err := p.Run(ctx, locateScript, "", args, names...)
		if err != nil {
			return Found{}, err
		}
		first := reply.Text()
		switch first {
		case "groups":
			names = append(names, reply.Rest()...)
		case "none":
			return Found{}, queue.ErrNotFound
		default:
			return parseFound(p, reply)
		}
		if err := reply.End(); err != nil {
			return Found{}, err
		}
	}
	return Found{}, queue.ErrGroupsKeepChanging
}

func parseFound(p *queue.Partition, r script.Reply) (Found, error) {
	f := Found{Partition: p.Number(), Now: r.Time(), ID: r.Text(), DueAt: r.Score(), Size: r.Count(), Body: r.Bytes()}
	f.Scheduled = !f.DueAt.IsZero()
	for rows := r.List(); rows.More(); {
		one := FoundFor{Group: rows.Text(), State: queue.State(rows.Text()), Score: rows.Text()}
		entry := rows.Text()
		one.Reason = rows.Text()
		size := rows.Count()
		one.Metadata = rows.Bytes()
		one.LeftOut = size > 0 && one.Metadata == nil
		one.read(entry)
		f.Groups = append(f.Groups, one)
	}
	slices.SortFunc(f.Groups, func(a, b FoundFor) int { return strings.Compare(a.Group, b.Group) })
	return f, r.End()
}

// read decodes the score and the attempts entry.
func (f *FoundFor) read(entry string) {
	if ms, err := script.Score(f.Score); err == nil && f.Score != "" {
		waits := f.State == queue.StateQueued || f.State == queue.StateRetrying
		if f.InLine = waits && ms >= script.InLine; f.InLine {
			ms -= script.InLine
		}
		f.At = time.UnixMilli(ms)
	}
	if entry != "" {
		read, _ := queue.ParseAttempts(entry)
		f.Token, f.Seen, f.Unsure = read.Token, read.Seen, read.Unsure
	}
	if f.Attempts = f.Seen + f.Unsure; f.State == queue.StateInDelivery { // a first claim leaves no entry
		f.Token, f.Attempts = max(f.Token, 1), max(f.Attempts, 1)
	}
}

// Exhausted returns why a claim dead-letters a message with a maximum number of deliveries (0: no maximum); "" if it does not.
// The text is the same as that of lib.lua.
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

// Holder returns the id of the consumer whose last claim leased a delivery; "" if no last claim did, because the consumer has
// claimed again. It reads up to about 1,000 records.
func Holder(ctx context.Context, g *queue.Group, id string, token int64) (string, error) {
	const steps = 100
	cursor := "0"
	for range steps {
		reply, err := g.Run(ctx, holderScript, []any{cursor, id, strconv.FormatInt(token, 10)})
		if err != nil {
			return "", err
		}
		next, consumer := reply.Text(), reply.Text()
		if err := reply.End(); err != nil {
			return "", fmt.Errorf("holder of %s: %w", id, err)
		}
		if consumer != "" || next == "0" {
			return consumer, nil
		}
		cursor = next
	}
	return "", nil
}
