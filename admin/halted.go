package admin

import (
	"context"
	"errors"
	"iter"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// HaltingMessages iterates over the dead messages of a group, or of all groups for "", that halt their ordering keys
// (redisdelay.GroupLimits.HaltsKeys): one for each group, key and partition, unsorted.
func (a *Admin) HaltingMessages(ctx context.Context, topic, group string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		sources, err := a.sources(ctx, topic, Query{Set: Dead, Group: group})
		for i := 0; i < len(sources) && err == nil; i++ {
			err = a.haltedIn(ctx, topic, sources[i], yield)
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(Entry{}, wrap(err, "list halted ordering keys of %q", topic))
		}
	}
}

// haltedIn yields the dead messages of a partition, each once, although Redis may return one twice.
func (a *Admin) haltedIn(ctx context.Context, topic string, s source, yield func(Entry, error) bool) error {
	seen := map[string]bool{}
	return inspect.FindTurns(ctx, s.group, func(_ int, halted, _ []string) error {
		for _, id := range halted {
			if seen[id] {
				continue
			}
			seen[id] = true
			found, err := inspect.LocateIn(ctx, s.group.Partition(), id, "")
			if errors.Is(err, ErrMessageNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if e, is := a.deadMessage(topic, s, found); is && !yield(e, nil) {
				return errEnough
			}
		}
		return nil
	})
}

// deadMessage returns the entry of a dead message; false if it is no longer dead.
func (a *Admin) deadMessage(topic string, s source, m inspect.Found) (Entry, bool) {
	for _, f := range m.Groups {
		if f.Group == s.group.Name() && f.State == queue.StateDead {
			return a.entry(topic, s, inspect.PageEntry{
				ID: m.ID, Score: f.At.UnixMilli(), Attempts: f.Attempts, Reason: f.Reason, Size: m.Size, Body: m.Body, Metadata: f.Metadata,
			}), true
		}
	}
	return Entry{}, false
}
