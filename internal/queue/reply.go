package queue

import (
	"fmt"
	"time"
)

// reader reads a reply value by value. It keeps the first error.
type reader struct {
	reply []any
	err   error
}

func (r *reader) value() any {
	if len(r.reply) == 0 {
		r.failed("its end")
		return nil
	}
	v := r.reply[0]
	r.reply = r.reply[1:]
	return v
}

func (r *reader) failed(what any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: it has %v", errReply, what)
	}
}

func (r *reader) count() int {
	v := r.value()
	n, ok := v.(int64)
	if !ok {
		r.failed(v)
	}
	return int(n)
}

func (r *reader) list() []any {
	list, ok := r.value().([]any)
	if !ok {
		r.failed("no list")
	}
	return list
}

func (r *reader) counts() []int {
	list := r.list()
	inner := reader{reply: list, err: r.err}
	counts := make([]int, len(list))
	for i := range counts {
		counts[i] = inner.count()
	}
	r.err = inner.err
	return counts
}

func (r *reader) text() string {
	v := r.value()
	text, ok := v.(string)
	if !ok {
		r.failed(v)
	}
	return text
}

func (r *reader) time() time.Time {
	t, err := timeOf(r.value())
	if err != nil {
		r.failed(err)
	}
	return t
}

// score is a score as a time; zero for "".
func (r *reader) score() time.Time {
	text := r.text()
	if text == "" {
		return time.Time{}
	}
	ms, err := msOf(text)
	if err != nil {
		r.failed(text)
	}
	return time.UnixMilli(ms)
}

// end returns the first error. All values must have been read.
func (r *reader) end() error {
	if len(r.reply) > 0 {
		r.failed(fmt.Sprintf("%d values more", len(r.reply)))
	}
	return r.err
}

func (r *reader) texts() []string {
	texts, err := stringsOf(r.list())
	if err != nil {
		r.failed(err)
	}
	return texts
}
