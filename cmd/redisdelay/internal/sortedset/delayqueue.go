package sortedset

import (
	"context"
	"errors"
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
			call := func(p redis.Pipeliner, member string) *redis.StringCmd { return p.Get(ctx, base+":msg:"+member) }
			return loadEach(ctx, client, jobs, call, func(job *Job, reply *redis.StringCmd) (err error) {
				if job.Payload, err = reply.Bytes(); err != nil {
					return errors.New("its payload is not there: it may have expired")
				}
				job.Metadata = map[string]string{delayqueueID: job.Member, delayqueueName: name}
				return nil
			})
		},
	}
}
