package inbox

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/oklog/ulid/v2"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// operation is the field op of an entry.
type operation string

// The operations. The default is opPublish.
const (
	opPublish    operation = "publish"
	opCancel     operation = "cancel"     // cancels the message with the key
	opReschedule operation = "reschedule" // gives the waiting message with the key a new due time
)

const (
	// maxDelay is the longest delay.
	maxDelay = 100 * 365 * 24 * time.Hour

	// minDue and maxDue limit due times and expirations, in ms since 1970, to 13 digits: September 2001 to November 2286. So
	// seconds and microseconds are rejected.
	minDue, maxDue = 1_000_000_000_000, 9_999_999_999_999

	// metadataField begins the names of fields that set metadata.
	metadataField = "meta."

	// ownMetadata begins the names of metadata that only the library writes.
	ownMetadata = "_redisdelay_"
)

// request is what an entry asks for.
type request struct {
	operation    operation
	topic        string
	traits       script.Traits
	partitionKey string
	delay        time.Duration // from the time in the id of the entry
	due          int64         // instead of delay, in ms; 0: none
	expires      int64         // in ms; 0: never
	msg          *message.Message
}

// requestOf reads an entry. An error is an invalidEntryError.
func requestOf(e intake.Entry) (request, error) {
	r, err := parse(e)
	if err != nil {
		err = invalidEntryError{err}
	}
	return r, err
}

func parse(e intake.Entry) (request, error) {
	r := request{operation: opPublish, msg: message.NewMessage("inbox-"+e.ID, nil)}
	if e.Bytes > 0 {
		return r, fmt.Errorf("%w: its fields have %d bytes", redisdelay.ErrMessageTooLarge, e.Bytes)
	}
	seen := map[string]bool{}
	for _, field := range e.Fields {
		name, value := field[0], field[1]
		if seen[name] {
			return r, fmt.Errorf("field %.100q is there twice", name)
		}
		seen[name] = true
		if err := r.read(name, value); err != nil {
			return r, fmt.Errorf("field %.100q: %w", name, err)
		}
	}
	switch {
	case r.topic == "":
		return r, errors.New(`field "topic" is missing`)
	case seen["delay_ms"] && seen["due_ms"]:
		return r, errors.New(`there are two due times, "delay_ms" and "due_ms"`)
	case r.operation != opPublish && r.traits.Key == "":
		return r, errors.New(`field "key" is missing`)
	case r.operation == opReschedule && !seen["delay_ms"] && !seen["due_ms"]:
		return r, errors.New(`field "delay_ms" or "due_ms" is missing`)
	}
	r.setMetadata()
	return r, nil
}

// setMetadata sets the metadata that Publish would set.
func (r *request) setMetadata() {
	if r.traits.Key != "" {
		redisdelay.SetKey(r.msg, r.traits.Key)
	}
	if r.traits.OrderingKey != "" {
		redisdelay.SetOrderingKey(r.msg, r.traits.OrderingKey)
	}
	if r.expires > 0 {
		redisdelay.SetExpiration(r.msg, time.UnixMilli(r.expires))
	}
}

// read reads a field.
func (r *request) read(name, value string) (err error) {
	switch name {
	case "op":
		switch r.operation = operation(value); r.operation {
		case opPublish, opCancel, opReschedule:
		default:
			return fmt.Errorf("is %.100q, want %s, %s or %s", value, opPublish, opCancel, opReschedule)
		}
	case "topic":
		r.topic = value
	case "uuid":
		r.msg.UUID = value
	case "payload":
		r.msg.Payload = []byte(value)
	case "key":
		r.traits.Key, err = keyOf(value, redisdelay.MaxKeyBytes)
	case "ordering_key":
		r.traits.OrderingKey, err = keyOf(value, redisdelay.MaxOrderingKeyBytes)
	case "partition_key":
		r.partitionKey = value
	case "delay_ms":
		if r.delay, err = duration(value); r.delay > 0 {
			r.delay += time.Millisecond // the time in the id is rounded down, and no message is early
		}
	case "due_ms":
		r.due, err = milliseconds(value, minDue, maxDue)
	case "expires_ms":
		r.expires, err = milliseconds(value, minDue, maxDue)
	default:
		return r.readMetadata(name, value)
	}
	return err
}

func (r *request) readMetadata(name, value string) error {
	name, is := strings.CutPrefix(name, metadataField)
	switch {
	case !is:
		return errors.New("is not known")
	case strings.HasPrefix(name, ownMetadata):
		return errors.New("is metadata that only the library writes")
	}
	r.msg.Metadata.Set(name, value)
	return nil
}

func keyOf(value string, most int) (string, error) {
	if value == "" || len(value) > most {
		return "", fmt.Errorf("has %d bytes, want 1 to %d", len(value), most)
	}
	return value, nil
}

func duration(value string) (time.Duration, error) {
	ms, err := milliseconds(value, 0, maxDelay.Milliseconds())
	return time.Duration(ms) * time.Millisecond, err
}

func milliseconds(value string, least, most int64) (int64, error) {
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil || ms < least || ms > most {
		return 0, fmt.Errorf("is %.100q, want whole milliseconds, %d to %d", value, least, most)
	}
	return ms, nil
}

// effectivePartitionKey returns the key that chooses the partition of the message; see redisdelay.PublisherConfig.PartitionKey.
func (r request) effectivePartitionKey(e intake.Entry) string {
	return cmp.Or(r.traits.OrderingKey, r.traits.Key, r.partitionKey, e.ID)
}

// idOf returns the id of the message of an entry. It is the same each time, and ids sort in the order of the entries.
func idOf(prefix string, e intake.Entry, traits script.Traits) string {
	ms, count := e.Parts()
	if ms > ulid.MaxTime() {
		ms, count = ulid.MaxTime(), count+(ms-ulid.MaxTime())<<16
	}
	var id ulid.ULID
	if id.SetTime(ms) != nil {
		panic("a time within the range of a ULID")
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(prefix))
	var entropy [10]byte
	copy(entropy[:2], hash.Sum(nil)[:2])
	binary.BigEndian.PutUint64(entropy[2:], count)
	if id.SetEntropy(entropy[:]) != nil {
		panic("ten bytes are the entropy of a ULID")
	}
	return id.String() + traits.String()
}
