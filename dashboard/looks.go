package dashboard

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

const (
	share     = 20              // looks take at most one in so many parts of the time
	lookFor   = 5 * time.Second // how long a look may take
	maxShared = 200             // looks that are kept
)

// looks reads Redis for all open pages of the process: one look at a time, and at most one in an interval for pages that
// nobody has just asked for.
type looks struct {
	admin    *admin.Admin
	interval time.Duration
	now      func() time.Time
	turn     chan struct{} // holds one while somebody looks: whoever does owns what follows

	shared   map[string]*look
	last     time.Time // when the last look began
	pause    time.Duration
	trends   map[string]*trend
	overview atomic.Pointer[overview] // the last one, for whoever needs no new one
}

// look is what was seen, and when.
type look struct {
	at    time.Time
	value any
	err   error
}

// overview is all topics at a moment.
type overview struct {
	At     time.Time
	Topics []admin.TopicStats
	Err    error // why a topic, or all of them, could not be read
	Trends map[string]trend
}

func newLooks(a *admin.Admin, interval time.Duration) *looks {
	return &looks{
		admin: a, interval: interval, now: time.Now, turn: make(chan struct{}, 1),
		shared: map[string]*look{}, trends: map[string]*trend{},
	}
}

// liveKey marks the context of a page that nobody has just asked for.
type liveKey struct{}

func asLive(ctx context.Context) context.Context { return context.WithValue(ctx, liveKey{}, true) }

// get returns what load returns, or has returned within the interval. For a live page it may be older, so that there is
// no more than one look in an interval, whatever pages are open.
func (l *looks) get(ctx context.Context, key string, load func(ctx context.Context) (any, error)) (any, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	known, now := l.shared[key], l.now()
	wait := max(l.interval, l.pause)
	if known != nil && (now.Sub(known.at) < wait || ctx.Value(liveKey{}) != nil && now.Sub(l.last) < wait) {
		return known.value, known.err
	}
	looking, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	value, err := load(looking)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l.last, l.pause = now, l.now().Sub(now)*share
	if failed(value, err) { // it has mostly waited, and people want to see when Redis is back
		l.pause /= share
	}
	l.shared[key] = &look{at: now, value: value, err: err}
	l.forget()
	return value, err
}

// failed says if a look has not seen all.
func failed(value any, err error) bool {
	o, all := value.(*overview)
	return err != nil || all && o.Err != nil
}

// forget drops the oldest look if there are too many.
func (l *looks) forget() {
	if len(l.shared) <= maxShared {
		return
	}
	oldest := ""
	for key, look := range l.shared {
		if oldest == "" || look.at.Before(l.shared[oldest].at) {
			oldest = key
		}
	}
	delete(l.shared, oldest)
}

// all returns all topics. It fails only with ctx: why topics could not be read is in the overview.
func (l *looks) all(ctx context.Context) (*overview, error) {
	value, err := l.get(ctx, "", func(ctx context.Context) (any, error) {
		topics, err := l.admin.Backlogs(ctx)
		o := &overview{At: l.now(), Topics: topics, Err: err, Trends: map[string]trend{}}
		if len(topics) > 0 {
			o.At = topics[0].At
		}
		l.remember(o)
		return o, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*overview), nil
}

// remember adds to the trends, and drops those of topics that are gone.
func (l *looks) remember(o *overview) {
	minute := l.now().Unix() / 60
	for _, s := range o.Topics {
		t := l.trends[s.Topic]
		if t == nil {
			t = &trend{}
			l.trends[s.Topic] = t
		}
		t.add(minute, s.Counts)
		o.Trends[s.Topic] = *t
	}
	if o.Err == nil {
		for name := range l.trends {
			if _, there := o.Trends[name]; !there {
				delete(l.trends, name)
			}
		}
	}
	l.overview.Store(o)
}

// topic returns one of the topics as it was at the last look; nil if it is not among them.
func (o *overview) topic(name string) *admin.TopicStats {
	for i := range o.Topics {
		if o.Topics[i].Topic == name {
			return &o.Topics[i]
		}
	}
	return nil
}
