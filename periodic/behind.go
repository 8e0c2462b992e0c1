package periodic

import (
	"context"
	"time"
)

// BehindAfter is for how long the next ticks of a schedule should have been stored before Behind counts it.
const BehindAfter = time.Minute

// Behind counts the schedules whose next ticks should have been stored more than BehindAfter ago, and returns for how long
// the first of them: no process runs them, or none that can. What is stored already comes on time. It costs one call,
// however many schedules there are. The error is that of ctx or of Redis.
func (p *Periodic) Behind(ctx context.Context) (count int, longest time.Duration, err error) {
	count, longest, err = p.table.Behind(ctx, BehindAfter)
	return count, longest, wrap(err, "count the schedules that are behind")
}
