package script

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// PipelineSize is how many calls are sent together. Redis answers them without serving other clients, so claims wait for
// them: some 0.8 ms if the calls count a topic.
const PipelineSize = 16

// Answer is the result of one of many calls.
type Answer struct {
	Reply Reply
	Err   error
}

// RunMany calls many scripts at once. Each may run any number of times. The Observer does not see the
// calls. If a master answers none of the calls that were sent together, it gets no more.
func (c *Client) RunMany(ctx context.Context, calls []Call) []Answer {
	key := func(call Call) string { return call.Keys[0] }
	return byMaster(ctx, c, calls, key, func(node *redis.Client, chunk []Call) []Answer {
		return c.runOn(ctx, c.inTime(ctx, node), chunk)
	})
}

// RunTogether calls scripts whose keys are in one slot, in one pipeline. The Observer sees each call. As with Run, the
// client may send calls more than once.
func (c *Client) RunTogether(ctx context.Context, calls []Call) []Answer {
	if len(calls) == 1 {
		reply, err := c.Run(ctx, calls[0])
		return []Answer{{reply, err}}
	}
	start := time.Now()
	answers, _ := c.runPipeline(ctx, c.inTime(ctx, c.node(ctx, calls[0].Keys[0])), calls)
	if c.observer.Called != nil {
		for i, call := range calls {
			c.report(call, start, answers[i].Err)
		}
	}
	return answers
}

// ByMaster calls do concurrently with the values of each master, so that a master that does not
// answer does not delay others. It returns the results in the order of the values.
func ByMaster[T, R any](ctx context.Context, c *Client, values []T, key func(T) string, do func(chunk []T) []R) []R {
	return byMaster(ctx, c, values, key, func(_ *redis.Client, chunk []T) []R { return do(chunk) })
}

// byMaster is ByMaster for a do that needs the master's client; see node.
func byMaster[T, R any](
	ctx context.Context, c *Client, values []T, key func(T) string, do func(node *redis.Client, chunk []T) []R,
) []R {
	indices := map[*redis.Client][]int{}
	for i, v := range values {
		node := c.node(ctx, key(v))
		indices[node] = append(indices[node], i)
	}
	results := make([]R, len(values))
	var calls sync.WaitGroup
	for node, of := range indices {
		calls.Go(func() {
			chunk := make([]T, len(of))
			for i, at := range of {
				chunk[i] = values[at]
			}
			for i, result := range do(node, chunk) {
				results[of[i]] = result
			}
		})
	}
	calls.Wait()
	return results
}

// node returns a client of the master that has a key; nil without a Cluster, or if no master is
// known.
func (c *Client) node(ctx context.Context, key string) *redis.Client {
	if c.cluster == nil {
		return nil
	}
	node, err := RunAbandonable(ctx, c, func(ctx context.Context) (*redis.Client, error) { return c.cluster.MasterForKey(ctx, key) })
	if err != nil {
		return nil // the Cluster client's own error says why
	}
	return node
}

// inTime returns a client of a node whose calls end soon after ctx. Without ContextTimeoutEnabled, go-redis ignores the deadline
// while it waits for a reply.
func (c *Client) inTime(ctx context.Context, node *redis.Client) redis.UniversalClient {
	client := c.redis
	if node != nil {
		client = node
	}
	if deadline, has := ctx.Deadline(); has && !c.endsSoon() {
		return withTimeout(client, max(time.Until(deadline), time.Millisecond))
	}
	return client
}

func (c *Client) runOn(ctx context.Context, node redis.UniversalClient, calls []Call) []Answer {
	answers := make([]Answer, 0, len(calls))
	for chunk := range slices.Chunk(calls, PipelineSize) {
		more, answered := c.runPipeline(ctx, node, chunk)
		if answers = append(answers, more...); !answered {
			return append(answers, slices.Repeat(more[:1], len(calls)-len(answers))...)
		}
	}
	return answers
}

// runPipeline makes calls in one pipeline, and reports whether any has an answer.
func (c *Client) runPipeline(ctx context.Context, node redis.UniversalClient, calls []Call) (answers []Answer, answered bool) {
	results, err := RunAbandonable(ctx, c, func(ctx context.Context) ([]*redis.Cmd, error) {
		results := make([]*redis.Cmd, len(calls))
		_, _ = node.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each has its own error
			for i, call := range calls {
				results[i] = c.form(call.Script).EvalSha(ctx, pipe, call.Keys, call.Args...)
			}
			return nil
		})
		return results, nil
	})
	if err != nil {
		return slices.Repeat([]Answer{{Err: err}}, len(calls)), false
	}
	answers = make([]Answer, len(calls))
	for i, call := range calls {
		values, err := results[i].Slice()
		answered = answered || err == nil || IsAnswer(err)
		reply := Reply{values: values}
		switch {
		case err == nil:
		case mustResend(err):
			reply, err = c.send(ctx, call)
		default:
			failed := err // the call may still run after RunAbandonable has set err
			_, err = RunAbandonable(ctx, c, func(ctx context.Context) (Reply, error) { return Reply{}, c.Failed(ctx, call, failed) })
		}
		answers[i] = Answer{reply, err}
	}
	return answers, answered
}

// mustResend reports whether an error is an answer after which a client that sends a single call
// sends it again: as EVAL, or to another master.
func mustResend(err error) bool {
	return slices.ContainsFunc([]string{"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN"}, func(prefix string) bool {
		return redis.HasErrorPrefix(err, prefix)
	})
}
