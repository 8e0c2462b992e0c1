package timetable

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

var behindScript = script.New(lua, "behind")

// Behind counts the schedules that should have been taken for longer than a time, and returns for how long the first of them.
// Its cost does not depend on how many there are.
func (t *Timetable) Behind(ctx context.Context, after time.Duration) (count int, longest time.Duration, err error) {
	reply, err := t.run(ctx, behindScript, []any{after.Milliseconds()})
	if err != nil {
		return 0, 0, err
	}
	count, longest = reply.Count(), time.Duration(reply.Int())*time.Millisecond
	return count, longest, reply.End()
}
