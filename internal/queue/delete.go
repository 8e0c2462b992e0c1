package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// Delete removes all that the topic has, and takes it off the list of topics. Calling it
// again continues an earlier call. Partition 0 comes last, since it has the number of
// partitions.
func (t *Topic) Delete(ctx context.Context) error {
	if err := t.known(ctx); err != nil {
		return err
	}
	for done := 1; ; {
		number, err := t.Partitions(ctx)
		if err != nil {
			return err
		}
		if number <= done {
			break
		}
		if err := t.visit(ctx, done, number, func(ctx context.Context, p *Partition) error { return p.drop(ctx) }); err != nil {
			return err
		}
		done = number
	}
	if err := t.Partition(0).drop(ctx); err != nil {
		return err
	}
	return t.store.delist(ctx, t.name)
}

// drop removes all that the partition has: of the groups that are registered or retired,
// and of those that only refs names.
func (p *Partition) drop(ctx context.Context) error {
	names, err := p.named(ctx)
	if err != nil {
		return err
	}
	until := int64(0) // so that the first call only asks
	for range 6 {
		args := append([]any{until}, anys(names)...)
		reply, err := p.run(ctx, dropScript, dropScript.keys(p.names, "", names), args)
		if err != nil {
			return err
		}
		words, err := stringsOf(reply)
		switch {
		case err != nil:
			return err
		case len(words) == 1 && words[0] == "dropped":
			return nil
		case len(words) < 2 || words[0] != "groups":
			return fmt.Errorf("%w: %q", errReply, words)
		}
		now, err := strconv.ParseInt(words[1], 10, 64)
		if err != nil {
			return fmt.Errorf("%w: time %q", errReply, words[1])
		}
		until, names = now+leftOf(ctx).Milliseconds(), append(names, words[2:]...)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return errGroupsKeepChanging
}

// named lists the groups that still need messages, in bounded steps.
func (p *Partition) named(ctx context.Context) ([]string, error) {
	var names []string
	for cursor := "0"; ; {
		reply, err := p.run(ctx, namedScript, namedScript.keys(p.names, "", nil), []any{cursor})
		if err != nil {
			return nil, err
		}
		words, err := stringsOf(reply)
		if err != nil || len(words) == 0 {
			return nil, fmt.Errorf("%w: %v", errReply, reply)
		}
		names = append(names, words[1:]...)
		slices.Sort(names)
		names = slices.Compact(names)
		if cursor = words[0]; cursor == "0" {
			return names, nil
		}
	}
}

// delist takes a topic off the list of topics.
func (s *Store) delist(ctx context.Context, topic string) error {
	for range 3 {
		now, err := s.nowAt(ctx, s.registry())
		if err != nil {
			return err
		}
		reply, err := s.run(ctx, scriptCall{
			script: delistScript, topic: topic, partition: -1, keys: []string{s.registry()},
			args: []any{topic, now + leftOf(ctx).Milliseconds()},
		})
		if err != nil {
			return err
		}
		if len(reply) == 1 && reply[0] == "delisted" {
			s.unlist(topic)
			return nil
		}
	}
	return fmt.Errorf("%w: a call arrives later than it was sent for", errReply)
}
