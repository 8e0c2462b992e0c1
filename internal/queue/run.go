package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// run calls a script, all of which return arrays. The client may send it more
// than once when a reply is lost; the scripts are made for that.
func run(
	ctx context.Context, client redis.UniversalClient, p partition, s script, keys []string, args []any,
) ([]any, error) {
	reply, err := s.on(client).Run(ctx, client, keys, args...).Slice()
	if err != nil {
		return nil, failed(ctx, client, p, keys, err)
	}
	return reply, nil
}

// runAndWait calls a script and then waits until some replicas have all that it
// wrote, or a timeout; it returns how many have. Both go out in one pipeline, since
// WAIT is about the writes of its own connection.
func runAndWait(
	ctx context.Context, client redis.UniversalClient, p partition, s script, keys []string, args []any,
	replicas int, timeout time.Duration,
) (reply []any, acknowledged int, err error) {
	node, err := masterOf(ctx, client, keys[0])
	if err != nil {
		return nil, 0, err
	}
	call := func(eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) error {
		var result, wait *redis.Cmd
		_, _ = node.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each has its own error
			result = eval(ctx, pipe, keys, args...)
			wait = pipe.Do(ctx, "wait", replicas, timeout.Milliseconds())
			return nil
		})
		if reply, err = result.Slice(); err != nil {
			return err
		}
		acknowledged, err = wait.Int()
		return err
	}
	err = call(s.on(client).EvalSha) // which does not go on with EVAL in a pipeline
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = call(s.on(client).Eval)
	}
	if err != nil {
		return nil, 0, failed(ctx, client, p, keys, err)
	}
	return reply, acknowledged, nil
}

// masterOf is the client of the node that has a key: a pipeline of a Cluster client
// would send a command without a key to any node.
func masterOf(ctx context.Context, client redis.UniversalClient, key string) (redis.UniversalClient, error) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, key)
	}
	return client, nil
}

// failed explains an error and, in a Cluster, has the client look at once who the
// masters are: after a dial that is refused it would go on with its old view.
func failed(ctx context.Context, client redis.UniversalClient, p partition, keys []string, err error) error {
	if Transient(err) {
		look(ctx, client)
	}
	return explain(ctx, client, p, keys, err)
}

func look(ctx context.Context, client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
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
