package script

import (
	"crypto/rand"
	"io"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// IDLength is the length of an id without a message key.
const IDLength = ulid.EncodedSize

// IDs makes message ids: ULIDs, followed by the message's key if it has one. The ids of
// one IDs sort in the order in which it made them. It is safe for concurrent use.
type IDs struct {
	mu      sync.Mutex
	entropy io.Reader // guarded by mu
	last    uint64    // guarded by mu; ms of the last id
}

// NewIDs returns a source of ids that no other source makes.
func NewIDs() *IDs {
	return &IDs{entropy: ulid.Monotonic(rand.Reader, 0)}
}

// Next returns the next id. The ids keep their order even if the wall clock is set
// back.
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
