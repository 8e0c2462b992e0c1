package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipelined is how many calls go out at once. Redis answers them without a look at other
// clients.
const pipelined = 32

// answer is how one of many calls has ended.
type answer struct {
	reply []any
	err   error
}

// pipeliner is a client of a single node, or of a Cluster whose masters are not known.
type pipeliner interface {
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// runMany calls scripts that may run any number of times, many at once, and does not tell the Observer.
// When a master answers none of the calls that went out together, it gets no others.
func (s *Store) runMany(ctx context.Context, calls []scriptCall) []answer {
	key := func(c scriptCall) string { return c.keys[0] }
	return byMaster(ctx, s, calls, key, func(node *redis.Client, some []scriptCall) []answer {
		return s.runOn(ctx, s.inTime(ctx, node), some)
	})
}

// byMaster calls do for what each master has, side by side, so that one that does not
// answer holds up no other. It returns the results in the order of the values. See node.
func byMaster[T, R any](
	ctx context.Context, s *Store, values []T, key func(T) string, do func(node *redis.Client, some []T) []R,
) []R {
	indices := map[*redis.Client][]int{}
	for i, v := range values {
		node := s.node(ctx, key(v))
		indices[node] = append(indices[node], i)
	}
	results := make([]R, len(values))
	var calls sync.WaitGroup
	for node, of := range indices {
		calls.Go(func() {
			some := make([]T, len(of))
			for i, at := range of {
				some[i] = values[at]
			}
			for i, result := range do(node, some) {
				results[of[i]] = result
			}
		})
	}
	calls.Wait()
	return results
}

// node is a client of the master that has a key; nil without a Cluster, and if no master
// is known.
func (s *Store) node(ctx context.Context, key string) *redis.Client {
	if s.cluster == nil {
		return nil
	}
	node, err := promptly(ctx, s, func(ctx context.Context) (*redis.Client, error) { return s.cluster.MasterForKey(ctx, key) })
	if err != nil {
		return nil // the client of the Cluster says why
	}
	return node
}

// inTime is a client of a node whose calls end with ctx: by itself, it heeds a deadline
// only until it waits for a reply, unless it has ContextTimeoutEnabled.
func (s *Store) inTime(ctx context.Context, node *redis.Client) pipeliner {
	client := pipeliner(s.client)
	if node != nil {
		client = node
	}
	deadline, limited := ctx.Deadline()
	limiter, can := client.(interface {
		WithTimeout(timeout time.Duration) *redis.Client
	})
	if limited && can {
		return limiter.WithTimeout(max(time.Until(deadline), time.Millisecond))
	}
	return client
}

func (s *Store) runOn(ctx context.Context, node pipeliner, calls []scriptCall) []answer {
	answers := make([]answer, 0, len(calls))
	for some := range slices.Chunk(calls, pipelined) {
		more, answered := s.runSome(ctx, node, some)
		if answers = append(answers, more...); answered {
			continue
		}
		return append(answers, slices.Repeat(more[:1], len(calls)-len(answers))...)
	}
	return answers
}

// runSome makes calls in one pipeline, and returns whether any has an answer.
func (s *Store) runSome(ctx context.Context, node pipeliner, calls []scriptCall) (answers []answer, answered bool) {
	results, err := promptly(ctx, s, func(ctx context.Context) ([]*redis.Cmd, error) {
		results := make([]*redis.Cmd, len(calls))
		_, _ = node.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each has its own error
			for i, c := range calls {
				results[i] = s.form(c.script).EvalSha(ctx, pipe, c.keys, c.args...)
			}
			return nil
		})
		return results, nil
	})
	if err != nil {
		return slices.Repeat([]answer{{err: err}}, len(calls)), false
	}
	answers = make([]answer, len(calls))
	for i, c := range calls {
		reply, err := results[i].Slice()
		answered = answered || err == nil || isAnswer(err)
		switch {
		case err == nil:
		case elsewhere(err):
			reply, err = s.send(ctx, c)
		default:
			_, err = promptly(ctx, s, func(ctx context.Context) ([]any, error) { return nil, s.failed(ctx, c, err) })
		}
		answers[i] = answer{reply, err}
	}
	return answers, answered
}

// elsewhere tells whether an error is an answer to which a client that sends a single call
// sends another one: EVAL, or to another master.
func elsewhere(err error) bool {
	return slices.ContainsFunc([]string{"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN"}, func(prefix string) bool {
		return redis.HasErrorPrefix(err, prefix)
	})
}
