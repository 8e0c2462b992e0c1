package script

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// ErrReply says that a script has returned an unexpected reply.
var ErrReply = Permanent("unexpected reply from script")

// Reply is the reply of a script, or a list in it, which is read value by value. After the first
// value of an unexpected type, all other values are zero; End returns the error.
type Reply struct {
	values []any
	err    error
	whole  *Reply // the reply that has the list; nil for a reply itself
}

// ReplyOf returns a reply with some values.
func ReplyOf(values ...any) Reply { return Reply{values: values} }

// Values returns the unread values, as the client returned them.
func (r *Reply) Values() []any { return r.values }

// Len returns the number of unread values.
func (r *Reply) Len() int { return len(r.values) }

// More reports whether there are unread values, and no error so far.
func (r *Reply) More() bool { return len(r.values) > 0 && r.failure() == nil }

// Begins reports whether the next value is this word.
func (r *Reply) Begins(word string) bool { return len(r.values) > 0 && r.values[0] == word }

// Fail records an error in the reply, unless there was one before.
func (r *Reply) Fail(format string, args ...any) {
	for r.whole != nil {
		r = r.whole
	}
	if r.err == nil {
		r.err = fmt.Errorf("%w: %w", ErrReply, fmt.Errorf(format, args...))
	}
}

func (r *Reply) failure() error {
	for r.whole != nil {
		r = r.whole
	}
	return r.err
}

// End returns the first error. It is an error if there are unread values.
func (r *Reply) End() error {
	if len(r.values) > 0 {
		r.Fail("it has %d values more", len(r.values))
	}
	return r.failure()
}

func (r *Reply) value() any {
	if len(r.values) == 0 {
		r.Fail("it has its end too early")
		return nil
	}
	v := r.values[0]
	r.values = r.values[1:]
	return v
}

// other records that a value has an unexpected type.
func (r *Reply) other(value any, want string) {
	r.Fail("it has %.100s, want %s", fmt.Sprintf("%#v", value), want)
}

// Int reads a whole number.
func (r *Reply) Int() int64 {
	v := r.value()
	n, ok := v.(int64)
	if !ok {
		r.other(v, "a number")
	}
	return n
}

// Count reads a number of items.
func (r *Reply) Count() int { return int(r.Int()) }

// Text reads a string.
func (r *Reply) Text() string {
	v := r.value()
	text, ok := v.(string)
	if !ok {
		r.other(v, "a text")
	}
	return text
}

// Bytes reads a string that may be missing; then it is nil.
func (r *Reply) Bytes() []byte {
	text, ok := r.value().(string)
	if !ok {
		return nil
	}
	return []byte(text)
}

// Time reads a time, a string in ms.
func (r *Reply) Time() time.Time {
	text := r.Text()
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.Fail("it has the time %q", text)
	}
	return time.UnixMilli(ms)
}

// Score reads a score as a time; zero for "".
func (r *Reply) Score() time.Time {
	text := r.Text()
	if text == "" {
		return time.Time{}
	}
	ms, err := Score(text)
	if err != nil {
		r.Fail("it has the score %q", text)
	}
	return time.UnixMilli(ms)
}

// List reads a list.
func (r *Reply) List() Reply {
	v := r.value()
	list, ok := v.([]any)
	if !ok {
		r.other(v, "a list")
	}
	return Reply{values: list, whole: r}
}

// Texts reads a list of strings.
func (r *Reply) Texts() []string {
	list := r.List()
	return list.Rest()
}

// Pairs reads a list of pairs of strings.
func (r *Reply) Pairs() [][2]string {
	list := r.List()
	if list.Len()%2 != 0 {
		r.Fail("it has %d values in pairs", list.Len())
	}
	pairs := make([][2]string, 0, list.Len()/2)
	for list.More() {
		pairs = append(pairs, [2]string{list.Text(), list.Text()})
	}
	return pairs
}

// Counts reads a list of numbers of items.
func (r *Reply) Counts() []int {
	list := r.List()
	counts := make([]int, list.Len())
	for i := range counts {
		counts[i] = list.Count()
	}
	return counts
}

// Rest reads all unread values, which are strings.
func (r *Reply) Rest() []string { return r.First(len(r.values)) }

// First reads the next n values, which are strings.
func (r *Reply) First(n int) []string {
	if n < 0 || n > len(r.values) {
		r.Fail("it has %d values, want %d", len(r.values), n)
		return nil
	}
	texts := make([]string, n)
	for i := range texts {
		texts[i] = r.Text()
	}
	return texts
}

// Score parses a score, in whole ms, rounded down. Another program may have written any score.
func Score(text string) (int64, error) {
	const exact = 1 << 53 // scores are exact up to here
	ms, err := strconv.ParseFloat(text, 64)
	return int64(math.Floor(min(max(ms, -exact), exact))), err
}
