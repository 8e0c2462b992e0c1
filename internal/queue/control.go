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

var (
	// ErrGroupRetired says that a consumer group has been retired.
	ErrGroupRetired = errors.New("the consumer group is retired")

	// ErrGroupNotFound says that a topic has no such consumer group.
	ErrGroupNotFound = errors.New("the topic has no such consumer group")

	// ErrTopicNotFound says that a topic is not on the list of topics.
	ErrTopicNotFound = errors.New("there is no such topic")

	// ErrGroupAlive says that consumers of a group are alive.
	ErrGroupAlive = errors.New("the consumer group has consumers that are alive")

	errNotRetired = errors.New("the consumer group was restored meanwhile")
)

// Pause describes how long, and why, groups are paused.
type Pause struct {
	Duration time.Duration `json:"-"` // 0: until Resume
	By       string        `json:"by,omitempty"`
	Reason   string        `json:"reason,omitempty"`
}

// Pause stops a group, or all groups if it is "", from claiming. It replaces an earlier
// pause.
func (t *Topic) Pause(ctx context.Context, group string, pause Pause) error {
	text, err := json.Marshal(pause)
	if err != nil {
		return err
	}
	return t.firstThenOthers(ctx, func(ctx context.Context, p *Partition) error {
		return p.Group(group).changeSetting(ctx, pauseScript, group, script.Milliseconds(pause.Duration), text, p.Channel(), p.unknownPolicy())
	})
}

// Resume ends the pause of a group, or of all groups if it is "". If there is no pause, it does
// nothing, or returns ErrGroupNotFound if there is no such group.
func (t *Topic) Resume(ctx context.Context, group string) error {
	return t.firstThenOthers(ctx, func(ctx context.Context, p *Partition) error {
		return p.Group(group).changeSetting(ctx, resumeScript, group, p.Channel(), p.unknownPolicy())
	})
}

// unknownPolicy is the argument "how" of the scripts that change a group's settings: partition 0 refuses an
// unknown group, and the others accept any, since partition 0 has decided.
func (p *Partition) unknownPolicy() string {
	if p.Number() == 0 {
		return "known"
	}
	return string(retireFollow)
}

// changeSetting calls a script that changes a group's settings. If the script does not know the group, the
// error is ErrGroupNotFound.
func (g *Group) changeSetting(ctx context.Context, s *script.Script, args ...any) error {
	reply, err := g.Run(ctx, s, args)
	if err == nil && reply.Begins("unknown") {
		return fmt.Errorf("%w: %q", ErrGroupNotFound, g.name)
	}
	return err
}

// firstThenOthers calls do for the first partition, and then for all others at once. A partition
// that is added meanwhile either has adopted the changes of do in the first one, or is visited,
// too.
func (t *Topic) firstThenOthers(ctx context.Context, do func(ctx context.Context, p *Partition) error) error {
	if err := t.RequireListed(ctx); err != nil {
		return err
	}
	if err := do(ctx, t.Partition(0)); err != nil {
		return err
	}
	for done := 1; ; {
		number, err := t.Partitions(ctx)
		if err != nil || number <= done {
			return err
		}
		if err := t.EachIn(ctx, done, number, do); err != nil {
			return err
		}
		done = number
	}
}

// Groups returns the groups of the first partition, and the number of partitions.
func (t *Topic) Groups(ctx context.Context) (names []string, partitions int, err error) {
	partitions, settings, err := t.raise(ctx, 1, MaxPartitions+1) // no topic has this number, so the groups are returned
	return settings.groups, partitions, err
}

// RequireListed returns ErrTopicNotFound unless the topic is on the list.
func (t *Topic) RequireListed(ctx context.Context) error {
	if err := t.checkFormat(ctx); err != nil {
		return err
	}
	if t.store.knowsListed(t.name) {
		return nil
	}
	return t.RequireListedNow(ctx) // checkFormat returns no error if the list cannot be read
}

// askWhile repeats the call of a script while its reply begins with the word again.
func (g *Group) askWhile(ctx context.Context, again string, s *script.Script, args ...any) (word string, rest []string, err error) {
	for {
		reply, err := g.Run(ctx, s, args)
		if err != nil {
			return "", nil, err
		}
		word, rest := reply.Text(), reply.Rest()
		if err := reply.End(); err != nil || word != again {
			return word, rest, err
		}
	}
}

// Leave records that a consumer has ended. No other consumer may have claimed through this Group.
func (g *Group) Leave(ctx context.Context, consumer string) error {
	claims := "over"
	if g.repeatable.Load() {
		claims = "repeatable"
	}
	_, err := g.Run(ctx, leaveScript, []any{consumer, g.name, claims})
	return err
}

// ErrLimitTooLow says that the limits of a group are too low to give each partition a share.
var ErrLimitTooLow = script.Permanent("a group's limits are lower than the number of partitions")

const limitsField = "limits:"

// Limits are the limits of a group in all partitions together.
type Limits struct {
	MaxInFlight int           `json:"maxInFlight,omitempty"` // messages in delivery; 0: any number
	Messages    int           `json:"messages,omitempty"`    // claimed in Per; 0: any number
	Per         time.Duration `json:"per,omitempty"`
	Burst       int           `json:"burst,omitempty"` // claimed at once when the group has been idle
	HaltsKeys   bool          `json:"halts,omitempty"` // a dead message halts its ordering key
}

// maxPartitions returns how many partitions can have a share; 0 for any number.
func (l Limits) maxPartitions() int {
	limit := l.MaxInFlight
	if l.Messages > 0 && (limit == 0 || l.Burst < limit) {
		limit = l.Burst
	}
	return limit
}

// share returns a partition's share of the limits, as lib_claim.lua reads it, followed by the whole
// limits; "" for no limits.
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
		part(l.MaxInFlight, partition, partitions), interval, burst, l.maxPartitions(), whole), nil
}

// part returns a partition's part of a number, at least 1 unless the number is 0.
func part(number, partition, partitions int) int {
	share := number / partitions
	if partition < number%partitions {
		share++
	}
	return max(share, min(number, 1))
}

// ParseLimits reads the whole limits from a share.
func ParseLimits(share string) (Limits, error) {
	var l Limits
	parts := strings.SplitN(share, " ", 5)
	if err := json.Unmarshal([]byte(parts[len(parts)-1]), &l); err != nil || len(parts) != 5 {
		return Limits{}, fmt.Errorf("%w: limits %q", script.ErrReply, share)
	}
	return l, nil
}

// Limit sets the limits of a group, or removes them if l is zero. Partitions that are added
// meanwhile get their share, too.
func (t *Topic) Limit(ctx context.Context, group string, l Limits) error {
	if err := t.RequireListed(ctx); err != nil {
		return err
	}
	return t.limit(ctx, group, l)
}

// limit is Limit for a topic that is on the list.
func (t *Topic) limit(ctx context.Context, group string, l Limits) error {
	for done := 0; ; {
		number, err := t.Partitions(ctx)
		if err == nil {
			err = l.validateFor(number)
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
		err = t.EachIn(ctx, 1, number, func(ctx context.Context, p *Partition) error {
			_, err := p.limit(ctx, group, l, number, "")
			return err
		})
		if err != nil {
			return err
		}
		done = number
	}
}

// validateFor returns ErrLimitTooLow if the limits do not give each of so many partitions a share.
func (l Limits) validateFor(partitions int) error {
	if limit := l.maxPartitions(); limit > 0 && limit < partitions {
		return fmt.Errorf("%w: there are %d, and the limits allow %d", ErrLimitTooLow, partitions, limit)
	}
	return nil
}

// limit sets the partition's share of the limits if the current share is was, or was is "".
func (p *Partition) limit(ctx context.Context, group string, l Limits, partitions int, was string) (answer string, err error) {
	share, err := l.share(p.Number(), partitions)
	if err != nil {
		return "", err
	}
	g := p.Group(group)
	answer, _, err = g.askWhile(ctx, "", limitScript, group, share, p.Channel(), p.unknownPolicy(), partitions, was)
	if err == nil && answer == "unknown" {
		err = fmt.Errorf("%w: %q", ErrGroupNotFound, group)
	}
	return answer, err
}

// setFirstShare sets the first partition's share for a number of partitions, unless another call has
// set other limits since.
func (t *Topic) setFirstShare(ctx context.Context, settings groupSettings, partitions int) error {
	for i := 0; i+1 < len(settings.rules); i += 2 {
		group, limited := strings.CutPrefix(settings.rules[i], limitsField)
		if !limited {
			continue
		}
		whole, err := ParseLimits(settings.rules[i+1])
		if err != nil {
			return err
		}
		_, err = t.Partition(0).limit(ctx, group, whole, partitions, settings.rules[i+1])
		if err != nil && !errors.Is(err, ErrGroupNotFound) { // it has gone since
			return err
		}
	}
	return nil
}

// limited reports whether a group has limits.
func (g groupSettings) limited() bool {
	return slices.ContainsFunc(g.rules, func(text string) bool { return strings.HasPrefix(text, limitsField) })
}

// rulesFor returns the pauses, and a partition's share of the limits.
func (g groupSettings) rulesFor(partition, partitions int) ([]string, error) {
	rules := slices.Clone(g.rules)
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
