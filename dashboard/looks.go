package dashboard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	share     = 20               // looks for live pages take at most one in so many parts of the time
	askShare  = 5                // and those for people who ask for a page again and again
	maxPause  = 30 * time.Second // however long they take
	patience  = 3                // a live page gets a look all the same after so many pauses, or turns, that went to others
	lookFor   = 5 * time.Second  // how long a look may take
	restShare = 3                // a look for live pages rests so many times as long as it asked
	maxRest   = time.Second      // but at most so long in all
	maxShared = maxStreams + 200 // looks that are kept: those of all live pages, and some for people who ask
	keepFor   = time.Minute      // and for how long without use
)

// looks reads Redis for all open pages of the process: one look at a time, and at most one in an interval for pages that
// nobody has just asked for.
type looks struct {
	admin    *admin.Admin
	interval time.Duration
	now      func() time.Time
	sleep    func(ctx context.Context, d time.Duration) bool
	asking   atomic.Int32  // how many wait for the turn who have just asked for a page
	turn     chan struct{} // holds one while somebody looks: whoever does owns what follows

	shared   map[string]*look
	last     time.Time     // when the last look began
	lastLive time.Time     // and the last one for a live page
	pause    time.Duration // after the last
	trends   map[string]*trend
}

// look is what was seen, and when.
type look struct {
	key   string
	at    time.Time
	cost  time.Duration
	value any
	err   error
	asked time.Time // when a live page last asked for it; owned by the turn
	stale bool      // somebody has changed something since; owned by the turn
}

// used is when it was taken, or a live page last asked for it.
func (k *look) used() time.Time {
	if k.asked.After(k.at) {
		return k.asked
	}
	return k.at
}

// overview is all topics at a moment.
type overview struct {
	Topics []admin.TopicStats
	Err    error // why some topics could not be read
	Trends map[string]trend
}

func newLooks(a *admin.Admin, interval time.Duration) *looks {
	return &looks{
		admin: a, interval: interval, now: time.Now, sleep: backoff.Sleep, turn: make(chan struct{}, 1),
		shared: map[string]*look{}, trends: map[string]*trend{},
	}
}

// liveKey marks the context of a page that nobody has just asked for.
type liveKey struct{}

// used are the looks that a live page shows: if they are those that it has shown, it is the same page.
type used struct {
	looks []*look
	waits bool // for the turn to look
}

// asLive is the context of a live page, and where its looks are noted.
func asLive(ctx context.Context) (context.Context, *used) {
	u := &used{}
	return context.WithValue(ctx, liveKey{}, u), u
}

// liveOf is where to note the looks of a live page; nil for a page that somebody has just asked for.
func liveOf(ctx context.Context) *used {
	u, _ := ctx.Value(liveKey{}).(*used)
	return u
}

func (u *used) note(l *look) {
	if u != nil {
		u.looks = append(u.looks, l)
	}
}

// errBusy is for a live page while somebody looks.
var errBusy = errors.New("somebody looks at Redis")

// take takes the turn to look. A live page that does not get it at once tries again at its next update: if all waited, all would
// be made at once, just when a look has kept Redis busy. One that has begun, or has tried often enough (patience), waits.
func (l *looks) take(ctx context.Context) error {
	if live := liveOf(ctx); live != nil && !live.waits {
		select {
		case l.turn <- struct{}{}:
			live.waits = true
			return nil
		default:
			return errBusy
		}
	} else if live == nil {
		l.asking.Add(1)
		defer l.asking.Add(-1)
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// get returns what load returns, or has returned within the interval. For a live page it may be older, so that there is
// no more than one look in an interval, whatever pages are open.
func (l *looks) get(ctx context.Context, key string, load func(ctx context.Context) (any, error)) (any, error) {
	if err := l.take(ctx); err != nil {
		return nil, err
	}
	defer func() { <-l.turn }()
	live, known, now := liveOf(ctx), l.shared[key], l.now()
	if known != nil && !l.isDue(live != nil, key, known, now) {
		live.note(known)
		return known.value, known.err
	}
	looking, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	var rested atomic.Int64
	if live != nil {
		looking = script.Resting(looking, func(took time.Duration) { l.rest(ctx, took, &rested) })
	}
	value, err := load(looking)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	took := l.now().Sub(now)
	took = max(took-time.Duration(rested.Load()), took/(1+restShare)) // masters of a Cluster rest side by side
	taken := &look{key: key, at: now, cost: costOf(took, value, err), value: value, err: err}
	if live != nil {
		l.lastLive, taken.asked = now, now
	} else if known != nil {
		taken.asked = known.asked
	}
	l.pause = min(max(taken.cost*share, l.pause-now.Sub(l.last)), maxPause) // the rest of the pause before holds, too
	l.last, l.shared[key] = now, taken
	live.note(taken)
	l.forget(now)
	return value, err
}

// current says if these looks are what a live page would get now. It takes none, and does not wait for the turn.
func (l *looks) current(shown []*look) bool {
	select {
	case l.turn <- struct{}{}:
	default:
		return false
	}
	defer func() { <-l.turn }()
	now, same := l.now(), len(shown) > 0
	for _, k := range shown {
		if l.shared[k.key] != k || l.isDue(true, k.key, k, now) {
			same = false
		}
	}
	return same
}

// rest lets others have Redis within a look for a live page, until somebody waits for the turn.
func (l *looks) rest(ctx context.Context, took time.Duration, rested *atomic.Int64) {
	d := min(restShare*took, maxRest-time.Duration(rested.Load()))
	if d > 0 && l.asking.Load() == 0 && l.sleep(ctx, d) {
		rested.Add(int64(d))
	}
}

// costOf is what a look has cost Redis: nothing if it has mostly waited, since people want to see when Redis is back. One that
// has read some topics in its time may have waited, or worked all the time.
func costOf(took time.Duration, value any, err error) time.Duration {
	o, all := value.(*overview)
	if all {
		err = o.Err
	}
	switch {
	case err == nil || !script.Transient(err):
		return took
	case all && len(o.Topics) > 0:
		return min(took, time.Second)
	}
	return 0
}

// isDue says if it is time to look again. A reader who has just asked gets a look that is younger than an interval or, if looks
// take long, than askShare times what it took, since a newer one would take longer than it is true; none from before a change.
// Live pages share one look in an interval, and the oldest that they want comes first. What readers ask for goes before it, but
// cannot hold it up for ever.
func (l *looks) isDue(live bool, key string, known *look, now time.Time) bool {
	age := now.Sub(known.at)
	if !live {
		return known.stale || age >= max(l.interval, askShare*known.cost)
	}
	known.asked = now
	wait := max(l.interval, l.pause)
	if l.rests(known, now) || now.Sub(l.last) < wait && now.Sub(l.lastLive) < patience*wait {
		return false
	}
	wanted := func(seen *look) bool { return now.Sub(seen.asked) <= 2*wait }
	number := 0
	for _, seen := range l.shared {
		if wanted(seen) {
			number++
		}
	}
	for other, seen := range l.shared {
		if wanted(seen) && !l.rests(seen, now) && weight(other, now.Sub(seen.at), number) > weight(key, age, number) {
			return false
		}
	}
	return true
}

// rests says if a look is too young for live pages to get another one. One that takes long rests for long, whatever others
// are taken meanwhile.
func (l *looks) rests(k *look, now time.Time) bool {
	return now.Sub(k.at) < max(l.interval, l.pause, min(share*k.cost, maxPause))
}

// weight makes the look at all topics, which most pages show, count as much as all others together.
func weight(key string, age time.Duration, number int) time.Duration {
	if key == "" {
		return age * time.Duration(number)
	}
	return age
}

// forget drops looks that nobody has used for long, and the one that is unused for longest if there are too many.
func (l *looks) forget(now time.Time) {
	oldest := ""
	for key, look := range l.shared {
		switch {
		case now.Sub(look.used()) > max(keepFor, 2*l.interval):
			delete(l.shared, key)
		case key != "" && (oldest == "" || look.used().Before(l.shared[oldest].used())):
			oldest = key
		}
	}
	if len(l.shared) > maxShared {
		delete(l.shared, oldest)
	}
}

// outdate lets whoever asks look again, since somebody has changed something, and may have left since. Live pages keep their pace.
func (l *looks) outdate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*lookFor)
	defer cancel()
	if l.take(ctx) != nil {
		return
	}
	for _, known := range l.shared {
		known.stale = true
	}
	<-l.turn
}

// all returns all topics. It fails if none could be read: why some could not is in the overview.
func (l *looks) all(ctx context.Context) (*overview, error) {
	value, err := l.get(ctx, "", func(ctx context.Context) (any, error) {
		topics, err := l.admin.QuickStats(ctx)
		if err != nil && len(topics) == 0 {
			return nil, err
		}
		o := &overview{Topics: topics, Err: err, Trends: map[string]trend{}}
		l.remember(o)
		return o, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*overview), nil
}

// trend returns the last hour of a topic, as far as it is known. A reader who has just asked for a page does not wait for a look
// at all topics; for an open page, one is taken if it is due.
func (l *looks) trend(ctx context.Context, topic string) trend {
	if liveOf(ctx) != nil {
		if o, err := l.all(ctx); err == nil {
			return o.Trends[topic]
		}
		return trend{}
	}
	if l.take(ctx) != nil {
		return trend{}
	}
	defer func() { <-l.turn }()
	if t := l.trends[topic]; t != nil {
		return *t
	}
	return trend{}
}

// remember adds to the trends, and drops those of topics that no look has seen for as long as trends go back.
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
	for name, t := range l.trends {
		if minute-t.last >= minutes {
			delete(l.trends, name)
		}
	}
}

// pointers are all topics, to be put in another order: there may be thousands.
func (o *overview) pointers() []*admin.TopicStats {
	list := make([]*admin.TopicStats, len(o.Topics))
	for i := range o.Topics {
		list[i] = &o.Topics[i]
	}
	return list
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
