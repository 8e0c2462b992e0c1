package queue

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// pipelined is how many calls go out at once. Redis answers them without a look at other
// clients.
const pipelined = 32

// answer is how one of many calls has ended.
type answer struct {
	reply []any
	err   error
}

// runMany calls scripts that change nothing, many at once, and does not tell the Observer.
// When Redis answers none of the calls that went out together, it tries no others.
func (s *Store) runMany(ctx context.Context, calls []scriptCall) []answer {
	answers := make([]answer, len(calls))
	for from := 0; from < len(calls); from += pipelined {
		some := calls[from:min(from+pipelined, len(calls))]
		if s.runSome(ctx, some, answers[from:]) {
			continue
		}
		for i := from + len(some); i < len(calls); i++ {
			answers[i].err = answers[from].err
		}
		break
	}
	return answers
}

// runSome makes calls in one pipeline, and returns whether any has an answer.
func (s *Store) runSome(ctx context.Context, calls []scriptCall, answers []answer) (answered bool) {
	results := make([]*redis.Cmd, len(calls))
	_, _ = s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each has its own error
		for i, c := range calls {
			results[i] = s.form(c.script).EvalSha(ctx, pipe, c.keys, c.args...)
		}
		return nil
	})
	for i, c := range calls {
		reply, err := results[i].Slice()
		switch {
		case err == nil:
			answered = true
		case redis.HasErrorPrefix(err, "NOSCRIPT"): // Run falls back to EVAL, which a pipeline cannot
			answered = true
			reply, err = s.send(ctx, c)
		default:
			answered = answered || isAnswer(err)
			err = s.failed(ctx, c, err)
		}
		answers[i] = answer{reply, err}
	}
	return answered
}
