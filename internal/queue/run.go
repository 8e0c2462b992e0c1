package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// scriptCall is a call of a script.
type scriptCall struct {
	script    *script
	topic     string
	partition int // -1: none
	keys      []string
	args      []any

	replicas int // how many must have its writes; 0: do not wait for any
	patience time.Duration
}

// call is a call of a script in the partition.
func (p *Partition) call(s *script, keys []string, args []any) scriptCall {
	return scriptCall{script: s, topic: p.topic, partition: p.number, keys: keys, args: args}
}

// run calls a script in the partition.
func (p *Partition) run(ctx context.Context, s *script, keys []string, args []any) ([]any, error) {
	return p.store.run(ctx, p.call(s, keys, args))
}

// run calls a script and tells the Observer. All scripts return arrays. The client may
// send a call more than once when a reply is lost; the scripts allow for that.
func (s *Store) run(ctx context.Context, c scriptCall) ([]any, error) {
	if s.observer.Called == nil {
		return s.send(ctx, c)
	}
	start := time.Now()
	reply, err := s.send(ctx, c)
	s.observer.Called(observe.Called{
		Topic: c.topic, Partition: c.partition, Script: c.script.name, Took: time.Since(start), Err: err,
	})
	return reply, err
}

func (s *Store) send(ctx context.Context, c scriptCall) ([]any, error) {
	if c.script.awaited {
		return s.sendNow(ctx, c)
	}
	return promptly(ctx, s, func(ctx context.Context) ([]any, error) { return s.sendNow(ctx, c) })
}

// sendNow is send for a caller that waits for the end of the call, whatever becomes of ctx.
func (s *Store) sendNow(ctx context.Context, c scriptCall) ([]any, error) {
	if c.replicas > 0 {
		return s.sendAndWait(ctx, c)
	}
	reply, err := s.form(c.script).Run(ctx, s.client, c.keys, c.args...).Slice()
	if err != nil {
		return nil, s.failed(ctx, c, err)
	}
	return reply, nil
}

// sendAndWait calls a script and then waits until enough replicas have its writes, or for
// a timeout. It sends both in one pipeline, since WAIT covers only the writes of its own
// connection. An error that comes with a reply is a *ReplicationError.
func (s *Store) sendAndWait(ctx context.Context, c scriptCall) (reply []any, err error) {
	node, err := s.master(ctx, c.keys[0])
	if err != nil {
		return nil, s.failed(ctx, c, err)
	}
	var result, wait *redis.Cmd
	call := func(eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) {
		_, _ = node.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each has its own error
			result = eval(ctx, pipe, c.keys, c.args...)
			wait = pipe.Do(ctx, "wait", c.replicas, c.patience.Milliseconds())
			return nil
		})
	}
	call(s.form(c.script).EvalSha) // Run does not fall back to EVAL in a pipeline
	if redis.HasErrorPrefix(result.Err(), "NOSCRIPT") {
		call(s.form(c.script).Eval)
	}
	reply, err = result.Slice()
	if err != nil {
		return nil, s.failed(ctx, c, err)
	}
	got, err := wait.Int()
	if err != nil && (Transient(err) || !isAnswer(err)) {
		return nil, s.failed(ctx, c, err) // so the caller sends it again
	}
	if err != nil || got < c.replicas {
		return reply, &ReplicationError{Want: c.replicas, Got: got, Err: err}
	}
	return reply, nil
}

func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// failed explains the error of a script. If it is transient, a Cluster client looks up
// the masters again.
func (s *Store) failed(ctx context.Context, c scriptCall, err error) error {
	if Transient(err) {
		s.look(ctx)
		return err
	}
	return s.explain(ctx, c, s.tooOld(unmark(err)))
}

// explain names the key behind a WRONGTYPE error; Redis does not.
func (s *Store) explain(ctx context.Context, c scriptCall, err error) error {
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	for i, key := range c.keys {
		node, nodeErr := s.master(ctx, key)
		if nodeErr != nil {
			return err
		}
		got, typeErr := node.Type(ctx, key).Result()
		if typeErr != nil {
			return err
		}
		if want := c.script.holds(i); got != want && got != "none" {
			return &KeyTypeError{Key: key, Type: got, Want: want, Err: err}
		}
	}
	return err
}

func stringsOf(reply []any) ([]string, error) {
	list := make([]string, len(reply))
	for i, value := range reply {
		s, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("%w: got %T, want a string", errReply, value)
		}
		list[i] = s
	}
	return list, nil
}

// milliseconds is a duration as the scripts want it, rounded up so that no message is due
// early.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
