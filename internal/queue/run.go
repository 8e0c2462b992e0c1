package queue

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// run calls a script, all of which return arrays. The client may send it more
// than once when a reply is lost; the scripts are made for that.
func run(
	ctx context.Context, client redis.UniversalClient, p partition,
	script *redis.Script, keys []string, args []any,
) ([]any, error) {
	reply, err := script.Run(ctx, client, keys, args...).Slice()
	if err != nil {
		return nil, explain(ctx, client, p, keys, err)
	}
	return reply, nil
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
