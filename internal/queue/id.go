package queue

import (
	"crypto/rand"
	"io"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// IDs makes message ids: ULIDs that sort in the order in which one IDs made
// them, followed by the message's key if it has one. It is safe for concurrent
// use.
type IDs struct {
	mu      sync.Mutex
	entropy io.Reader // guarded by mu
	last    uint64    // guarded by mu; ms of the last id
}

// NewIDs returns a source of ids that no other source makes as well.
func NewIDs() *IDs {
	return &IDs{entropy: ulid.Monotonic(rand.Reader, 0)}
}

// Next returns the next id, given the time. A wall clock that is set back does not
// set the order back.
func (s *IDs) Next(now time.Time, key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.last = max(s.last, ulid.Timestamp(now))
	id, err := ulid.New(s.last, s.entropy)
	if err != nil { // the entropy of this millisecond is used up
		s.last++
		id = ulid.MustNew(s.last, s.entropy)
	}
	if key == "" {
		return id.String()
	}
	return id.String() + ":" + key
}
