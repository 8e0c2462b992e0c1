package script

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Partition runs scripts on the keys of one partition of a topic, which are in one slot. It is safe
// for concurrent use.
type Partition struct {
	KeyNames
	client *Client
	topic  string
	number int
	wake   string // see Channel
	clock  clock
}

// Partition returns a partition of a topic. It does no I/O.
func (c *Client) Partition(topic string, number int) *Partition {
	n := NewKeyNames(c.prefix, topic, number)
	return &Partition{client: c, topic: topic, number: number, KeyNames: n, wake: string(n) + ":wake:" + strconv.Itoa(c.db)}
}

// Registry returns the key of the list of topics. It has its own hash tag, which no topic has,
// because the tag has no partition.
func (c *Client) Registry() string { return c.PrefixKey(Topics) }

// PrefixKeys returns the KEYS of a script for kinds that have one key per prefix: the schedules, or the inbox.
func (c *Client) PrefixKeys(s *Script) []string {
	keys := make([]string, len(s.keys))
	for i, k := range s.keys {
		keys[i] = c.PrefixKey(k)
	}
	return keys
}

// PrefixKey returns the key of a kind before Scheduled.
func (c *Client) PrefixKey(k Kind) string { return ofPrefix(c.prefix, k) }

// globEscaper escapes the special characters of a SCAN pattern.
var globEscaper = strings.NewReplacer("\\", "\\\\", "*", "\\*", "?", "\\?", "[", "\\[")

// KeyPattern returns a SCAN pattern that matches all keys of partitions.
func (c *Client) KeyPattern() string { return "{" + globEscaper.Replace(c.prefix) + ":*}:*" }

// TopicOf returns the topic of a key; "" if it is not a partition's key, or if keys of its kind expire.
func (c *Client) TopicOf(key string) string {
	tag, rest, _ := strings.Cut(key, "}:")
	tag, ofPrefix := strings.CutPrefix(tag, "{"+c.prefix+":")
	topic, number, _ := strings.Cut(tag, ":")
	name, _, _ := strings.Cut(rest, ":")
	known := slices.ContainsFunc(Kinds(), func(k Kind) bool { return k >= Scheduled && k.Name() == name && !k.Expires() })
	if !ofPrefix || !known || number == "" || strings.Contains(number, ":") {
		return ""
	}
	return topicUnescaper.Replace(topic)
}

// Client returns the Client of the partition.
func (p *Partition) Client() *Client { return p.client }

// Topic returns the topic's name.
func (p *Partition) Topic() string { return p.topic }

// Number returns the partition's number, from 0.
func (p *Partition) Number() int { return p.number }

// Channel returns the channel on which scripts notify subscribers of messages that are due earlier
// than others. Its name has the database, because databases share Pub/Sub.
func (p *Partition) Channel() string { return p.wake }

// Call returns a call of a script with some KEYS.
func (p *Partition) Call(s *Script, keys []string, args []any) Call {
	return Call{Script: s, Topic: p.topic, Partition: p.number, Keys: keys, Args: args}
}

// Run calls a script for a group, "" for none, and for each of several groups.
func (p *Partition) Run(ctx context.Context, s *Script, group string, args []any, each ...string) (Reply, error) {
	return p.client.Run(ctx, p.Call(s, p.Keys(s, group, each...), args))
}

// Now returns the time in ms by the clock of the partition's master, as in the scripts.
func (p *Partition) Now(ctx context.Context) (int64, error) {
	return p.client.Now(ctx, p.Key(Messages, ""))
}

// Now returns the time in ms by the clock of the master that has a key.
func (c *Client) Now(ctx context.Context, key string) (int64, error) {
	return RunAbandonable(ctx, c, func(ctx context.Context) (int64, error) {
		node, err := c.Master(ctx, key)
		if err != nil {
			return 0, err
		}
		now, err := node.Time(ctx).Result()
		if err != nil {
			if Transient(err) {
				c.reload(ctx)
			}
			return 0, err
		}
		return now.UnixMilli(), nil
	})
}

// maxCallTime is how long a call may take effect if its context has no earlier deadline.
const maxCallTime = 10 * time.Second

// RemainingTime returns how long the caller waits for a call.
func RemainingTime(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(time.Until(deadline), maxCallTime)
	}
	return maxCallTime
}

// errLate says that Redis's clock keeps running ahead of the time limits of calls.
var errLate = errors.New("no answer in time, by Redis's clock")

// clock has the last known time of a partition's Redis, for the time limits of calls. No host's
// clock is compared with Redis's: the reply to a late call has Redis's time.
type clock struct {
	mu    sync.Mutex
	redis time.Time // guarded by mu
	at    time.Time // guarded by mu; when the host received it
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.UnixMilli(0)
	}
	return c.redis.Add(time.Since(c.at))
}

func (c *clock) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.redis, c.at = now, time.Now()
}

// Until returns the time limit, in ms by Redis's clock, of a call whose caller waits this long. It is based on the
// last known time of Redis, which may be outdated.
func (p *Partition) Until(remaining time.Duration) int64 {
	return p.clock.now().Add(remaining).UnixMilli()
}

// SetClock records the time of Redis's clock.
func (p *Partition) SetClock(now time.Time) { p.clock.set(now) }

// InTime makes a call with a time limit in ms by Redis's clock, so that a copy that arrives later,
// when the caller no longer waits, changes nothing. If the call itself is late, it returns Redis's
// time, and InTime repeats it.
func (p *Partition) InTime(ctx context.Context, call func(until int64) (late time.Time, err error)) error {
	for range 4 {
		late, err := call(p.Until(RemainingTime(ctx)))
		if err != nil || late.IsZero() {
			return err
		}
		p.SetClock(late)
	}
	return errLate
}
