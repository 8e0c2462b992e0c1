package sortedset

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Metadata of what was a job of BullMQ.
const (
	bullmqName  = "bullmq_name"
	bullmqID    = "bullmq_id"
	bullmqQueue = "bullmq_queue"
	bullmqOpts  = "bullmq_opts" // JSON
)

// In a score of BullMQ, the last twelve bits order jobs of the same millisecond.
const bullmqSteps = 4096

// BullMQ returns the set of a queue of BullMQ that has its delayed jobs. A queue may be named with the prefix of its
// keys, as in "shop:orders"; without one, that is "bull". The payload of a job is its data, as JSON.
func BullMQ(client redis.UniversalClient, queue string) Set {
	if !strings.Contains(queue, ":") {
		queue = "bull:" + queue
	}
	return Set{
		Key: queue + ":delayed", client: client,
		ms: func(score float64) float64 { return math.Floor(score / bullmqSteps) },
		load: func(ctx context.Context, jobs []Job) error {
			call := func(p redis.Pipeliner, member string) *redis.SliceCmd {
				return p.HMGet(ctx, queue+":"+member, "data", "name", "opts", "rjk", "parentKey")
			}
			return loadEach(ctx, client, jobs, call, func(job *Job, reply *redis.SliceCmd) error {
				return job.fromBullMQ(reply.Val(), queue)
			})
		},
	}
}

func (j *Job) fromBullMQ(values []any, queue string) error {
	data, found := values[0].(string)
	if !found {
		return errors.New("its job is not there")
	}
	j.Payload = []byte(data)
	j.Metadata = map[string]string{bullmqID: j.Member, bullmqQueue: queue[strings.LastIndex(queue, ":")+1:]}
	for i, name := range []string{bullmqName, bullmqOpts} {
		if value, found := values[i+1].(string); found {
			j.Metadata[name] = value
		}
	}
	switch {
	case values[3] != nil:
		return errors.New("it is the next job of a job scheduler: declare a schedule in its place")
	case values[4] != nil:
		return errors.New("it is part of a flow, whose parent would wait for it forever")
	}
	return nil
}
