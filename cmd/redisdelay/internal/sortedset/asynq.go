package sortedset

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Metadata of what was a task of asynq, besides its headers.
const (
	asynqType  = "asynq_type"
	asynqID    = "asynq_id"
	asynqQueue = "asynq_queue"
)

// Asynq returns the sets of a queue of asynq in which tasks wait: those that are scheduled, and those that wait for a
// retry. The payload of a task is that of its message.
func Asynq(client redis.UniversalClient, queue string) []Set {
	var sets []Set
	for _, kind := range []string{"scheduled", "retry"} {
		sets = append(sets, Set{
			Key: "asynq:{" + queue + "}:" + kind, client: client,
			ms: func(score float64) float64 { return score * 1000 },
			load: func(ctx context.Context, jobs []Job) error {
				call := func(p redis.Pipeliner, member string) *redis.SliceCmd {
					return p.HMGet(ctx, "asynq:{"+queue+"}:t:"+member, "msg")
				}
				return loadEach(ctx, client, jobs, call, func(job *Job, reply *redis.SliceCmd) error {
					text, found := reply.Val()[0].(string)
					if !found {
						return errors.New("its task is not there")
					}
					return job.fromAsynq([]byte(text), queue)
				})
			},
		})
	}
	return sets
}

// fromAsynq reads asynq's TaskMessage: type = 1, payload = 2, id = 3, group_key = 14, headers = 15.
func (j *Job) fromAsynq(text []byte, queue string) error {
	j.Metadata = map[string]string{asynqQueue: queue, asynqID: j.Member}
	grouped := false
	err := protoFields(text, func(number uint64, value []byte) error {
		switch number {
		case 1:
			j.Metadata[asynqType] = string(value)
		case 2:
			j.Payload = value
		case 14:
			grouped = len(value) > 0
		case 15:
			var key, header string
			err := protoFields(value, func(number uint64, value []byte) error {
				if number == 1 {
					key = string(value)
				} else {
					header = string(value)
				}
				return nil
			})
			j.Metadata[key] = header
			return err
		}
		return nil
	})
	if err == nil && grouped {
		err = errors.New("it belongs to a group, whose tasks asynq makes one of")
	}
	return err
}

var errNoProto = errors.New("its task is not in the form of asynq")

// protoFields calls a function for each field of a protobuf message that has bytes.
func protoFields(text []byte, each func(number uint64, value []byte) error) error {
	for len(text) > 0 {
		tag, n := binary.Uvarint(text)
		if n <= 0 {
			return errNoProto
		}
		text = text[n:]
		length, skipped := uint64(0), 0
		switch tag & 7 {
		case 0:
			_, skipped = binary.Uvarint(text)
		case 1:
			skipped = 8
		case 2:
			length, skipped = binary.Uvarint(text)
		case 5:
			skipped = 4
		}
		if skipped <= 0 || uint64(len(text)) < uint64(skipped)+length || length > 1<<40 {
			return errNoProto
		}
		text = text[skipped:]
		if tag&7 != 2 {
			continue
		}
		if err := each(tag>>3, text[:length]); err != nil {
			return err
		}
		text = text[length:]
	}
	return nil
}
