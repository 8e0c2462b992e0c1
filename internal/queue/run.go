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
func run(
	ctx context.Context, client *Client, p partition, s script, keys []string, args []any,
) ([]any, error) {
	reply, err := client.script(s).Run(ctx, client.UniversalClient, keys, args...).Slice()
	if err != nil {
		return nil, failed(ctx, client, p, keys, err)
	}
	return reply, nil
}

// runAndWait calls a script and then waits until some replicas have all that it
// wrote, or a timeout. Both go out in one pipeline, since WAIT is about the writes of
// its own connection. With a reply, the error is a *ReplicationError.
func runAndWait(
	ctx context.Context, client *Client, p partition, s script, keys []string, args []any,
	replicas int, timeout time.Duration,
) (reply []any, err error) {
	node, err := client.master(ctx, keys[0])
	if err != nil {
		return nil, failed(ctx, client, p, keys, err)
	}
	var result, wait *redis.Cmd
	call := func(eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) {
		_, _ = node.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each has its own error
			result = eval(ctx, pipe, keys, args...)
			wait = pipe.Do(ctx, "wait", replicas, timeout.Milliseconds())
			return nil
		})
	}
	call(client.script(s).EvalSha) // which does not go on with EVAL in a pipeline
	if redis.HasErrorPrefix(result.Err(), "NOSCRIPT") {
		call(client.script(s).Eval)
	}
	reply, err = result.Slice()
	if err != nil {
		return nil, failed(ctx, client, p, keys, err)
	}
	got, err := wait.Int()
	if err != nil && (Transient(err) || !isAnswer(err)) {
		return nil, failed(ctx, client, p, keys, err) // to be sent again
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
func failed(ctx context.Context, client *Client, p partition, keys []string, err error) error {
	if Transient(err) {
		client.look(ctx)
		return err
	}
	return explain(ctx, client, p, keys, client.tooOld(unmark(err)))
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
