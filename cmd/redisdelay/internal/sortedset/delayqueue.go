package sortedset

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Metadata of what was a message of delayqueue.
const (
	delayqueueID   = "delayqueue_id"
	delayqueueName = "delayqueue_name"
)

// DelayQueue returns the set of a queue of hdt3213/delayqueue that has what is pending. The name of one that uses hash
// tags is in braces.
func DelayQueue(client redis.UniversalClient, queue string) Set {
	name, base := queue, "dp:"+queue
	if strings.HasPrefix(queue, "{") {
		name = strings.Trim(queue, "{}")
		base = "{dp:" + name + "}"
	}
	return Set{
		Key: base + ":pending", client: client,
		ms: func(score float64) float64 { return score * 1000 },
		load: func(ctx context.Context, jobs []Job) error {
			replies := make([]*redis.StringCmd, len(jobs))
			_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, job := range jobs {
					replies[i] = p.Get(ctx, base+":msg:"+job.Member)
				}
				return nil
			})
			if err != nil && !errors.Is(err, redis.Nil) {
				return fmt.Errorf("read messages of %q: %w", queue, err)
			}
			for i := range jobs {
				text, err := replies[i].Bytes()
				if err != nil {
					jobs[i].fail(errors.New("its payload is not there: it may have expired"))
					continue
				}
				jobs[i].Payload = text
				jobs[i].Metadata = map[string]string{delayqueueID: jobs[i].Member, delayqueueName: name}
			}
			return nil
		},
	}
}
