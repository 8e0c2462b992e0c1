package script

import (
	"crypto/rand"
	"io"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// IDLength is the length of the ULID that begins an id. The Traits follow.
const IDLength = ulid.EncodedSize

// IDs makes message ids: ULIDs, followed by the traits of the message that the scripts need. The
// ids of one IDs sort in the order of their creation. It is safe for concurrent use.
type IDs struct {
	mu      sync.Mutex
	entropy io.Reader // guarded by mu
	last    uint64    // guarded by mu; ms of the last id
}

// NewIDs returns a source of ids that no other source makes.
func NewIDs() *IDs {
	return &IDs{entropy: ulid.Monotonic(rand.Reader, 0)}
}

// Traits are the properties of a message that its id contains, besides the time of its creation.
type Traits struct {
	OrderingKey string // "": none
	Key         string // "": none
}

// Next returns the next id. The ids keep their order even if the wall clock is set back.
func (i *IDs) Next(now time.Time, traits Traits) string {
	i.mu.Lock()
	defer i.mu.Unlock()

	i.last = max(i.last, ulid.Timestamp(now))
	id, err := ulid.New(i.last, i.entropy)
	if err != nil { // the entropy of this millisecond is used up
		i.last++
		id = ulid.MustNew(i.last, i.entropy)
	}
	return id.String() + traits.String()
}

// String returns the part of an id after the ULID; see lib.lua.
func (t Traits) String() (text string) {
	if t.OrderingKey != "" {
		text = "=" + strconv.Itoa(len(t.OrderingKey)) + "," + t.OrderingKey
	}
	if t.Key != "" {
		text += ":" + t.Key
	}
	return text
}

// IsID reports whether a text has the form of an id: a ULID, and a text that Traits.String returns. For any other text,
// TraitsOf and the scripts may find different keys.
func IsID(text string) bool {
	if len(text) < IDLength {
		return false
	}
	_, err := ulid.ParseStrict(text[:IDLength])
	return err == nil && TraitsOf(text).String() == text[IDLength:]
}

var lengthOfOrderingKey = regexp.MustCompile(`^=(\d{1,6}),`)

// TraitsOf reads the traits in an id.
func TraitsOf(id string) (t Traits) {
	if len(id) <= IDLength+1 {
		return Traits{}
	}
	rest := id[IDLength:]
	if found := lengthOfOrderingKey.FindStringSubmatch(rest); found != nil {
		length, _ := strconv.Atoi(found[1])
		if rest = rest[len(found[0]):]; length > len(rest) {
			return Traits{}
		}
		t.OrderingKey, rest = rest[:length], rest[length:]
	}
	if rest != "" {
		t.Key = rest[1:]
	}
	return t
}
