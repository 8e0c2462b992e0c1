package delivery

import (
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// topology is what claims and notifications have shown of the topic. The times keep their monotonic clock reading, because the
// host's clock may be set back.
type topology struct {
	alarm  *alarm      // calls maintain, which resets grown and paused
	grown  atomic.Bool // there may be more partitions
	paused atomic.Bool // the group was paused

	recreatedAt atomic.Pointer[time.Time] // when the group was recreated; nil: never

	// of the last claim in the first partition
	partitions atomic.Int32
	upToDateAt atomic.Pointer[time.Time] // when it was made; nil: never
	endingAt   atomic.Pointer[time.Time] // when groups last might end soon; nil: never
}

// noteGrown records that there may be more partitions.
func (t *topology) noteGrown() {
	t.grown.Store(true)
	t.alarm.ring()
}

// notePaused records that the group was paused.
func (t *topology) notePaused() {
	t.paused.Store(true)
	t.alarm.ring()
}

// recreatedWithin is how long all partitions take at most to recreate a group.
const recreatedWithin = time.Minute

// firstToRecreate reports whether the caller's partition is the first that recreates the group.
func (t *topology) firstToRecreate() bool {
	now, last := time.Now(), t.recreatedAt.Load()
	first := last == nil || now.Sub(*last) >= recreatedWithin
	return first && t.recreatedAt.CompareAndSwap(last, &now)
}

// noteClaim records what a claim in the first partition shows of the topic. The number of partitions is 0 only in
// tests whose claims do not set it.
func (t *topology) noteClaim(claims queue.ClaimReply) {
	number := int32(claims.Partitions)
	if number == 0 {
		return
	}
	now := time.Now()
	t.upToDateAt.Store(&now)
	if claims.Ending {
		t.endingAt.Store(&now)
	}
	if t.partitions.Swap(number) != number {
		t.upToDateAt.Store(nil)
		t.noteGrown()
	}
}

// endingChecks is how many checks follow a claim that reports expiring groups. Ending a group takes two checks, at least
// 9 s apart.
const endingChecks = 3

// upToDate reports whether a recent claim has shown that there is nothing to check. The last claim of an idle consumer
// may be a quiet interval and a round trip ago.
func (t *topology) upToDate(c *Config) bool {
	at, ending := t.upToDateAt.Load(), t.endingAt.Load()
	return at != nil && time.Since(*at) < c.quietInterval()+c.PollInterval &&
		(ending == nil || time.Since(*ending) > endingChecks*c.PollInterval)
}
