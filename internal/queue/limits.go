package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrLimitTooLow says that the limits of a group give no share to some partitions.
var ErrLimitTooLow = errors.New("a group's limits are lower than the number of partitions")

const limitsField = "limits:"

// Limits are the limits of a group in all partitions together.
type Limits struct {
	MaxInFlight int           `json:"maxInFlight,omitempty"` // messages in delivery; 0: any number
	Messages    int           `json:"messages,omitempty"`    // claimed in Per; 0: any number
	Per         time.Duration `json:"per,omitempty"`
	Burst       int           `json:"burst,omitempty"` // claimed at once when the group has been idle
}

// partitionsAtMost is how many partitions can have a share; 0 for any number.
func (l Limits) partitionsAtMost() int {
	least := l.MaxInFlight
	if l.Messages > 0 && (least == 0 || l.Burst < least) {
		least = l.Burst
	}
	return least
}

// share is a partition's part of the limits, as lib_claim.lua reads it, and the whole.
func (l Limits) share(partition, partitions int) (string, error) {
	whole, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	interval, burst := 0.0, 0
	if l.Messages > 0 {
		interval = float64(l.Per.Nanoseconds()) / 1000 * float64(partitions) / float64(l.Messages)
		burst = part(l.Burst, partition, partitions)
	}
	return fmt.Sprintf("%d %.6f %d %d %s",
		part(l.MaxInFlight, partition, partitions), interval, burst, l.partitionsAtMost(), whole), nil
}

// part divides a number among partitions. Each gets at least one, if there is any.
func part(number, partition, partitions int) int {
	share := number / partitions
	if partition < number%partitions {
		share++
	}
	return max(share, min(number, 1))
}

// parseLimits reads the whole from a share.
func parseLimits(share string) (Limits, error) {
	var l Limits
	parts := strings.SplitN(share, " ", 5)
	if err := json.Unmarshal([]byte(parts[len(parts)-1]), &l); err != nil || len(parts) != 5 {
		return Limits{}, fmt.Errorf("%w: limits %q", errReply, share)
	}
	return l, nil
}

// Limit limits a group, or with zero Limits no longer. Other partitions that are added
// meanwhile get their share, too.
func (t *Topic) Limit(ctx context.Context, group string, l Limits) error {
	if err := t.advance(ctx); err != nil {
		return err
	}
	for done := 0; ; {
		number, err := t.Partitions(ctx)
		if err != nil || number == done {
			return err
		}
		if most := l.partitionsAtMost(); most > 0 && most < number {
			return fmt.Errorf("%w: %q has %d partitions, the limits of group %q allow %d",
				ErrLimitTooLow, t.name, number, group, most)
		}
		limit := func(ctx context.Context, p *Partition) error { return p.limit(ctx, group, l, number, p.deciding()) }
		if err := limit(ctx, t.Partition(0)); err != nil {
			return err
		}
		if err := t.visit(ctx, 1, number, limit); err != nil {
			return err
		}
		done = number
	}
}

func (p *Partition) limit(ctx context.Context, group string, l Limits, partitions int, how string) error {
	share := ""
	if l != (Limits{}) {
		var err error
		if share, err = l.share(p.number, partitions); err != nil {
			return err
		}
	}
	return p.Group(group).told(ctx, limitScript, group, share, p.channel(), how)
}

// limited tells whether a group has limits.
func (l lesson) limited() bool {
	return slices.ContainsFunc(l.rules, func(text string) bool { return strings.HasPrefix(text, limitsField) })
}

// rulesFor are the pauses, and a partition's share of the limits.
func (l lesson) rulesFor(partition, partitions int) ([]string, error) {
	rules := slices.Clone(l.rules)
	for i := 0; i+1 < len(rules); i += 2 {
		if !strings.HasPrefix(rules[i], limitsField) {
			continue
		}
		whole, err := parseLimits(rules[i+1])
		if err != nil {
			return nil, err
		}
		if rules[i+1], err = whole.share(partition, partitions); err != nil {
			return nil, err
		}
	}
	return rules, nil
}
