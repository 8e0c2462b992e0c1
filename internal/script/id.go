package script

import (
	"crypto/rand"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// IDLength is the length of an id without a message key.
const IDLength = ulid.EncodedSize

// IDs makes message ids: ULIDs, followed by the message's ordering key and its key, if it has them. The ids
// of one IDs sort in the order in which it made them. It is safe for concurrent use.
type IDs struct {
	mu      sync.Mutex
	entropy io.Reader // guarded by mu
	last    uint64    // guarded by mu; ms of the last id
}

// NewIDs returns a source of ids that no other source makes.
func NewIDs() *IDs {
	return &IDs{entropy: ulid.Monotonic(rand.Reader, 0)}
}

// Next returns the next id, of a message with an ordering key and a key, "" for none. The ids keep their
// order even if the wall clock is set back.
func (s *IDs) Next(now time.Time, ordering, key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.last = max(s.last, ulid.Timestamp(now))
	id, err := ulid.New(s.last, s.entropy)
	if err != nil { // the entropy of this millisecond is used up
		s.last++
		id = ulid.MustNew(s.last, s.entropy)
	}
	text := id.String()
	if ordering != "" {
		text += "=" + strconv.Itoa(len(ordering)) + "," + ordering
	}
	if key != "" {
		text += ":" + key
	}
	return text
}

// KeysOf are the ordering key and the key in an id, "" for none. See lib.lua.
func KeysOf(id string) (ordering, key string) {
	if len(id) <= IDLength+1 {
		return "", ""
	}
	rest := id[IDLength:]
	if text, ordered := strings.CutPrefix(rest, "="); ordered {
		length, after, _ := strings.Cut(text, ",")
		if n, err := strconv.Atoi(length); err == nil && n >= 0 && n <= len(after) {
			ordering, rest = after[:n], after[n:]
		}
	}
	if rest != "" {
		key = rest[1:]
	}
	return ordering, key
}
