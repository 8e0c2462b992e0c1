// Package sortedset reads jobs that wait in sorted sets which this library has not written: sets that people have made
// by hand, and those of asynq, BullMQ and delayqueue. A job becomes a line that admin.Import reads, with an id that is
// the same each time.
package sortedset

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Unit is what scores count since 1970.
type Unit string

// The units.
const (
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
)

// pageSize is how many jobs are read at once.
const pageSize = 500

// Job is a member of a sorted set.
type Job struct {
	Member   string
	Score    float64
	Due      int64 // ms since 1970
	Payload  []byte
	Metadata map[string]string
	Problem  error // why it cannot become a message; else nil
}

// Set is a sorted set to read. Reading changes nothing.
type Set struct {
	Key string

	client redis.UniversalClient
	ms     func(score float64) float64 // since 1970
	load   func(ctx context.Context, jobs []Job) error
}

// ByHand returns a set whose scores are due times. The payload of a job is its member; with a hash, the value of the
// field that is named like the member.
func ByHand(client redis.UniversalClient, key, hash string, unit Unit) Set {
	s := Set{Key: key, client: client, ms: func(score float64) float64 { return score }}
	if unit == Seconds {
		s.ms = func(score float64) float64 { return score * 1000 }
	}
	s.load = func(ctx context.Context, jobs []Job) error {
		for i := range jobs {
			jobs[i].Payload = []byte(jobs[i].Member)
		}
		if hash == "" {
			return nil
		}
		call := func(p redis.Pipeliner, member string) *redis.SliceCmd { return p.HMGet(ctx, hash, member) }
		return loadEach(ctx, client, jobs, call, func(job *Job, reply *redis.SliceCmd) error {
			text, found := reply.Val()[0].(string)
			if !found {
				return fmt.Errorf("hash %q has no field of that name", hash)
			}
			job.Payload = []byte(text)
			return nil
		})
	}
	return s
}

// Count returns how many members the set has.
func (s Set) Count(ctx context.Context) (int, error) {
	n, err := s.client.ZCard(ctx, s.Key).Result()
	if err != nil {
		return 0, fmt.Errorf("count sorted set %q: %w", s.Key, err)
	}
	return int(n), nil
}

// Pages reads all members that are in the set from the beginning to the end of the walk, in no order. A member may
// come more than once. It ends after an error.
func (s Set) Pages(ctx context.Context) iter.Seq2[[]Job, error] {
	return func(yield func([]Job, error) bool) {
		for cursor := uint64(0); ; {
			reply, next, err := s.client.ZScan(ctx, s.Key, cursor, "", pageSize).Result()
			if err != nil {
				yield(nil, fmt.Errorf("read sorted set %q: %w", s.Key, err))
				return
			}
			// A small set comes whole, whatever the size asked for.
			for some := range slices.Chunk(reply, 2*pageSize) {
				jobs, err := s.jobs(ctx, some)
				if !yield(jobs, err) || err != nil {
					return
				}
			}
			if cursor = next; cursor == 0 {
				return
			}
		}
	}
}

// jobs are the jobs of members and scores, in turns.
func (s Set) jobs(ctx context.Context, reply []string) ([]Job, error) {
	jobs := make([]Job, 0, len(reply)/2)
	for i := 0; i+1 < len(reply); i += 2 {
		score, err := strconv.ParseFloat(reply[i+1], 64)
		if err != nil {
			return nil, fmt.Errorf("score of member %q of %q: %w", reply[i], s.Key, err)
		}
		job := Job{Member: reply[i], Score: score}
		job.Due, job.Problem = due(s.ms(score))
		jobs = append(jobs, job)
	}
	if err := s.load(ctx, jobs); err != nil {
		return nil, err
	}
	return jobs, nil
}

// Due times that are outside come from a score in another unit, so it is better to ask.
const (
	earliest = 100_000_000_000   // in 1973; these seconds are in the year 5138
	latest   = 7_258_118_400_000 // in 2200
)

var (
	errInfinite = errors.New("its score is infinite")
	errNegative = errors.New("its score is negative")
	errTooEarly = errors.New("it would be due before 1973: does its score count seconds?")
	errTooLate  = errors.New("it would be due after 2199: does its score count milliseconds?")
)

// due is a due time in whole milliseconds, rounded up so that nothing comes early, except what floating point adds. 0
// is due at once.
func due(ms float64) (int64, error) {
	switch {
	case math.IsInf(ms, 0):
		return 0, errInfinite
	case ms < 0:
		return 0, errNegative
	case ms > 0 && ms < earliest:
		return 0, errTooEarly
	case ms >= latest:
		return 0, errTooLate
	}
	return int64(math.Ceil(max(0, ms-0.001))), nil
}

// loadEach makes a call for each job, in one round trip, and hands its reply to fill.
func loadEach[C redis.Cmder](
	ctx context.Context, client redis.UniversalClient, jobs []Job, call func(p redis.Pipeliner, member string) C, fill func(*Job, C) error,
) error {
	replies := make([]C, len(jobs))
	_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, job := range jobs {
			replies[i] = call(p, job.Member)
		}
		return nil
	}) // each reply has its own error
	for i, reply := range replies {
		if err := reply.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("read job %q: %w", jobs[i].Member, err)
		}
		if err := fill(&jobs[i], reply); err != nil {
			jobs[i].fail(err)
		}
	}
	return nil
}

// fail says why the job cannot become a message. The first reason stays.
func (j *Job) fail(problem error) {
	if j.Problem == nil {
		j.Problem = problem
	}
}
