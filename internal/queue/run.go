package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// run calls a script, all of which return arrays. The client may send it more
// than once when a reply is lost; the scripts are made for that.
func (p *Partition) run(ctx context.Context, s *script, keys []string, args []any) ([]any, error) {
	reply, err := p.store.script(s).Run(ctx, p.store.client, keys, args...).Slice()
	if err != nil {
		return nil, p.failed(ctx, s, keys, err)
	}
	return reply, nil
}

// runAndWait calls a script and then waits until some replicas have all that it
// wrote, or a timeout. Both go out in one pipeline, since WAIT is about the writes of
// its own connection. With a reply, the error is a *ReplicationError.
func (p *Partition) runAndWait(
	ctx context.Context, s *script, keys []string, args []any, replicas int, timeout time.Duration,
) (reply []any, err error) {
	node, err := p.store.master(ctx, keys[0])
	if err != nil {
		return nil, p.failed(ctx, s, keys, err)
	}
	var result, wait *redis.Cmd
	call := func(eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) {
		_, _ = node.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each has its own error
			result = eval(ctx, pipe, keys, args...)
			wait = pipe.Do(ctx, "wait", replicas, timeout.Milliseconds())
			return nil
		})
	}
	call(p.store.script(s).EvalSha) // which does not go on with EVAL in a pipeline
	if redis.HasErrorPrefix(result.Err(), "NOSCRIPT") {
		call(p.store.script(s).Eval)
	}
	reply, err = result.Slice()
	if err != nil {
		return nil, p.failed(ctx, s, keys, err)
	}
	got, err := wait.Int()
	if err != nil && (Transient(err) || !isAnswer(err)) {
		return nil, p.failed(ctx, s, keys, err) // to be sent again
	}
	if err != nil || got < replicas {
		return reply, &ReplicationError{Want: replicas, Got: got, Err: err}
	}
	return reply, nil
}

func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// failed explains the error of a script and, in a Cluster, has the client look who the
// masters are.
func (p *Partition) failed(ctx context.Context, s *script, keys []string, err error) error {
	if Transient(err) {
		p.store.look(ctx)
		return err
	}
	return p.explain(ctx, s, keys, p.store.tooOld(unmark(err)))
}

func stringsOf(reply []any) ([]string, error) {
	list := make([]string, len(reply))
	for i, value := range reply {
		s, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("%w: %T where a string was due", errReply, value)
		}
		list[i] = s
	}
	return list, nil
}

// milliseconds is a duration as the scripts want it, rounded up: what is due after it must
// not be due before.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
