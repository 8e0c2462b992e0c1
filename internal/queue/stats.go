package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Survey is what a partition has, whatever the groups.
type Survey struct {
	Now                time.Time
	Scheduled, Due     int
	OldestDue, NextDue time.Time // zero if there is none
	Messages           int
	Sample             []int // sizes of some bodies
	Keys, Windows      int
}

// Survey counts what the partition has.
func (p *Partition) Survey(ctx context.Context) (Survey, error) {
	reply, err := p.run(ctx, surveyScript, surveyScript.keys(p.names, "", nil), nil)
	if err != nil {
		return Survey{}, err
	}
	r := reader{reply: reply}
	s := Survey{
		Now: r.time(), Scheduled: r.count(), Due: r.count(), OldestDue: r.score(), NextDue: r.score(),
		Messages: r.count(), Sample: r.counts(), Keys: r.count(), Windows: r.count(),
	}
	return s, r.end()
}

// memorySamples is how many entries of a key Redis looks at to estimate the whole.
const memorySamples = 50

// Memory estimates how many bytes of Redis's memory the keys of the partition and of some of its
// groups take. It is false if Redis refuses to say.
func (p *Partition) Memory(ctx context.Context, groups []string) (bytes int64, known bool, err error) {
	for some := range slices.Chunk(p.keys(groups), pipelined) {
		answers, err := p.store.memory(ctx, some)
		if err != nil {
			return 0, false, err
		}
		for _, a := range answers {
			size, err := a.Result()
			switch {
			case errors.Is(err, redis.Nil): // there is no such key
			case err != nil && isAnswer(err):
				return 0, false, nil
			case err != nil:
				return 0, false, err
			}
			bytes += size
		}
	}
	return bytes, true, nil
}

// memory asks how many bytes some keys in one slot take. Each answer has its own error.
func (s *Store) memory(ctx context.Context, keys []typedKey) ([]*redis.IntCmd, error) {
	return promptly(ctx, s, func(ctx context.Context) ([]*redis.IntCmd, error) {
		node, err := s.master(ctx, keys[0].name)
		if err != nil {
			return nil, err
		}
		answers := make([]*redis.IntCmd, len(keys))
		_, _ = node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, key := range keys {
				answers[i] = pipe.MemoryUsage(ctx, key.name, memorySamples)
			}
			return nil
		})
		return answers, nil
	})
}

// Tally is what a partition has for a group.
type Tally struct {
	Now                     time.Time
	Queued, Later           int // due, and due later
	OldestQueued, NextRetry time.Time
	InDelivery, Expired     int
	OldestUnacked           string // an id
	Dead                    int
	OldestDead              time.Time
}

// Tally counts what the partition has for the group.
func (g *Group) Tally(ctx context.Context) (Tally, error) {
	reply, err := g.run(ctx, tallyScript, nil)
	if err != nil {
		return Tally{}, err
	}
	r := reader{reply: reply}
	t := Tally{
		Now: r.time(), Queued: r.count(), Later: r.count(), OldestQueued: r.score(), NextRetry: r.score(),
		InDelivery: r.count(), Expired: r.count(), OldestUnacked: r.text(), Dead: r.count(), OldestDead: r.score(),
	}
	return t, r.end()
}

// Listed is a topic on the list of topics.
type Listed struct{ Name, Version string }

// Topics returns the list of topics, sorted by name. It changes nothing.
func (s *Store) Topics(ctx context.Context) ([]Listed, error) {
	keys := []string{s.registry()}
	if err := s.check(ctx, keys[0]); err != nil {
		return nil, err
	}
	names := map[string]string{}
	for cursor := "0"; ; {
		reply, err := s.run(ctx, scriptCall{script: topicsScript, partition: -1, keys: keys, args: []any{cursor}})
		if err != nil {
			return nil, err
		}
		r := reader{reply: reply}
		next, rows := r.text(), r.texts()
		if err := r.end(); err != nil || len(rows)%2 != 0 {
			return nil, fmt.Errorf("%w: topics up to %v", errReply, reply[0])
		}
		for i := 0; i < len(rows); i += 2 {
			names[rows[i]] = rows[i+1]
		}
		if cursor = next; cursor == "0" {
			break
		}
	}
	var list []Listed
	for name, version := range names {
		list = append(list, Listed{name, version})
	}
	slices.SortFunc(list, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
