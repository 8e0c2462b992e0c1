package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// ErrLimitTooLow says that the limits of a group give no share to some partitions.
var ErrLimitTooLow = script.Permanent("a group's limits are lower than the number of partitions")

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

// share is a partition's part of the limits, as lib_claim.lua reads it, and the whole; ""
// for no limits.
func (l Limits) share(partition, partitions int) (string, error) {
	if l == (Limits{}) {
		return "", nil
	}
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

// ParseLimits reads the whole from a share.
func ParseLimits(share string) (Limits, error) {
	var l Limits
	parts := strings.SplitN(share, " ", 5)
	if err := json.Unmarshal([]byte(parts[len(parts)-1]), &l); err != nil || len(parts) != 5 {
		return Limits{}, fmt.Errorf("%w: limits %q", script.ErrReply, share)
	}
	return l, nil
}

// Limit limits a group, or with zero Limits no longer. Other partitions that are added
// meanwhile get their share, too.
func (t *Topic) Limit(ctx context.Context, group string, l Limits) error {
	number, err := t.Partitions(ctx)
	if err == nil {
		err = l.fits(number)
	}
	switch {
	case err != nil:
		return err
	case l == Limits{}:
		err = t.Known(ctx) // this needs no new version
	default:
		err = t.advance(ctx, group)
	}
	if err != nil {
		return err
	}
	return t.limit(ctx, group, l)
}

// limit is Limit for a topic whose version allows it.
func (t *Topic) limit(ctx context.Context, group string, l Limits) error {
	for done := 0; ; {
		number, err := t.Partitions(ctx)
		if err == nil {
			err = l.fits(number)
		}
		if err != nil || number == done {
			return err
		}
		answer, err := t.Partition(0).limit(ctx, group, l, number, "")
		switch {
		case err != nil:
			return err
		case answer == "grown":
			continue
		}
		err = t.Visit(ctx, 1, number, func(ctx context.Context, p *Partition) error {
			_, err := p.limit(ctx, group, l, number, "")
			return err
		})
		if err != nil {
			return err
		}
		done = number
	}
}

// fits returns ErrLimitTooLow if so many partitions cannot all have a share.
func (l Limits) fits(partitions int) error {
	if most := l.partitionsAtMost(); most > 0 && most < partitions {
		return fmt.Errorf("%w: there are %d, and the limits allow %d", ErrLimitTooLow, partitions, most)
	}
	return nil
}

// limit gives the partition its share of limits, if it has the one that they replace; "" for
// any.
func (p *Partition) limit(ctx context.Context, group string, l Limits, partitions int, was string) (answer string, err error) {
	share, err := l.share(p.Number(), partitions)
	if err != nil {
		return "", err
	}
	g := p.Group(group)
	answer, _, err = g.askWhile(ctx, "", limitScript, group, share, p.Channel(), p.deciding(), partitions, was)
	if err == nil && answer == "unknown" {
		err = fmt.Errorf("%w: %q", ErrGroupNotFound, group)
	}
	return answer, err
}

// shareOfFirst gives the first partition its share for a number of partitions, unless somebody
// has set other limits since.
func (t *Topic) shareOfFirst(ctx context.Context, taught lesson, partitions int) error {
	for i := 0; i+1 < len(taught.rules); i += 2 {
		group, limited := strings.CutPrefix(taught.rules[i], limitsField)
		if !limited {
			continue
		}
		whole, err := ParseLimits(taught.rules[i+1])
		if err != nil {
			return err
		}
		_, err = t.Partition(0).limit(ctx, group, whole, partitions, taught.rules[i+1])
		if err != nil && !errors.Is(err, ErrGroupNotFound) { // it has gone since
			return err
		}
	}
	return nil
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
		whole, err := ParseLimits(rules[i+1])
		if err != nil {
			return nil, err
		}
		if rules[i+1], err = whole.share(partition, partitions); err != nil {
			return nil, err
		}
	}
	return rules, nil
}
