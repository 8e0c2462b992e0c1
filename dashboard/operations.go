package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// Limits of operations.
const (
	maxRunning  = 16  // at once
	maxEnded    = 100 // that are remembered
	maxFindings = 200 // of the doctor, of each severity, that are kept
)

// operation is something that takes longer than a page: a bulk operation, or an examination. It goes on when the page
// that has begun it is closed.
type operation struct {
	// immutable once it has started
	ID, Action, Topic, Actor string
	verb, What               string // such as "Cancel all scheduled messages", or "Paused group mail"
	Done                     string // of its messages, such as "cancelled"; "" for a change of a group, a topic or a schedule
	Total                    int    // 0: not known
	Began                    time.Time
	needs                    permission
	deletesMessage           bool       // a message that it was for has no page any more
	again                    url.Values // of the confirmation of the rest; nil if there is no rest
	cancel                   context.CancelFunc
	ended                    chan struct{} // closed when it has ended

	mu  sync.Mutex
	now status // guarded by mu
}

// status is how far an operation is.
type status struct {
	Progress admin.Progress
	Examined admin.ExamineProgress
	End      time.Time // zero if it runs
	Err      error     // why it has failed
	outcome  string    // its State when it has ended

	findings []admin.Finding
	counts   [3]int // of findings, by severityRank
}

// Now is how far it is.
func (o *operation) Now() status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

// URL is the query of its page. It has all that a process needs to go on that does not know the operation.
func (o *operation) URL() string {
	values := o.rest()
	values.Set("id", o.ID)
	return values.Encode()
}

// Again is the query of the page that confirms the rest; "" if there is none.
func (o *operation) Again() string {
	if rest := o.rest(); o.again != nil && rest.Has("cursor") && o.State() != "running" {
		return rest.Encode()
	}
	return ""
}

// rest is what is left to confirm: what was asked for, from where it has come to. Nothing is left of what is done.
func (o *operation) rest() url.Values {
	values := url.Values{}
	if o.State() == "done" {
		return values
	}
	maps.Copy(values, o.again)
	if p := o.Now().Progress; p.Cursor != "" {
		values.Set("cursor", p.Cursor)
		values.Set("left", strconv.Itoa(max(0, o.Total-p.Done-p.Skipped)))
	}
	return values
}

// Percent is how far it is, from 0 to 100.
func (o *operation) Percent() int {
	now := o.Now()
	done, total := now.Progress.Done+now.Progress.Skipped, o.Total
	if now.Examined.Total > 0 {
		done, total = now.Examined.Done, now.Examined.Total
	}
	if total <= 0 {
		return 0
	}
	return min(100, done*100/total)
}

// Pace says how fast it is, and how long the rest takes at this rate; "" at the beginning.
func (o *operation) Pace() string {
	p, took := o.Now().Progress, time.Since(o.Began)
	done := float64(p.Done + p.Skipped)
	if done == 0 || took < time.Second {
		return ""
	}
	left := (float64(o.Total) - done) / done * float64(took)
	return humanize.Number(int(done/took.Seconds())) + " messages per second, about " + humanize.Duration(time.Duration(max(0, left))) + " left. "
}

// State is "running", "done", "stopped" or "failed".
func (o *operation) State() string { return cmp.Or(o.Now().outcome, "running") }

// outcomeOf is the State of an operation that has returned err.
func outcomeOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "done"
	case ctx.Err() != nil:
		return "stopped"
	}
	return "failed"
}

// Title names it.
func (o *operation) Title() string { return o.verb + " " + o.What }

// Outcome says how far it is, such as "1,600 of 4,700 messages cancelled"; "" for a change, which its Title names.
func (o *operation) Outcome() string {
	now := o.Now()
	p, text := now.Progress, humanize.Count(now.Progress.Done, "message", "messages")
	switch {
	case o.Done == "":
		return ""
	case o.Action == "examine":
		problems, warnings := humanize.Count(now.counts[2], "problem", "problems"), humanize.Count(now.counts[1], "warning", "warnings")
		return problems + ", " + warnings + ", " + humanize.Count(now.counts[0], "check", "checks") + " passed"
	case now.End.IsZero() && o.Total > 0:
		text = humanize.Number(p.Done) + " of " + humanize.Count(o.Total, "message", "messages")
	}
	text += " " + o.Done
	if p.Skipped > 0 {
		text += ", " + humanize.Number(p.Skipped) + " skipped"
	}
	if p.LastSkip != nil {
		text += " (" + p.LastSkip.Error() + ")"
	}
	return text
}

// Findings are what the doctor has found, the worst first.
func (o *operation) Findings() []admin.Finding {
	worst := func(a, b admin.Finding) int { return severityRank(b.Severity) - severityRank(a.Severity) }
	return slices.SortedStableFunc(slices.Values(o.Now().findings), worst)
}

// Kinds are the problems and warnings by check, the worst first.
func (o *operation) Kinds() (kinds [][]admin.Finding) {
	for _, f := range o.Findings() {
		i := slices.IndexFunc(kinds, func(kind []admin.Finding) bool { return kind[0].Check == f.Check })
		switch {
		case f.Severity == admin.SeverityInfo:
		case i < 0:
			kinds = append(kinds, []admin.Finding{f})
		default:
			kinds[i] = append(kinds[i], f)
		}
	}
	return kinds
}

// Number is how many findings of a severity there are.
func (o *operation) Number(severity admin.Severity) int {
	return o.Now().counts[severityRank(severity)]
}

// Left is how many findings are not kept.
func (o *operation) Left() int {
	now := o.Now()
	return now.counts[0] + now.counts[1] + now.counts[2] - len(now.findings)
}

func severityRank(s admin.Severity) int {
	return slices.Index([]admin.Severity{admin.SeverityInfo, admin.SeverityWarning, admin.SeverityProblem}, s)
}

func (o *operation) update(change func(now *status)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.now)
}

func (o *operation) found(f admin.Finding) {
	o.update(func(now *status) {
		n := &now.counts[severityRank(f.Severity)]
		if *n++; *n <= maxFindings {
			now.findings = append(now.findings, f)
		}
	})
}

func (o *operation) finish(outcome string, err error) {
	o.update(func(now *status) { now.End, now.Err, now.outcome = time.Now(), err, outcome })
	close(o.ended)
}

// operations are those of this process.
type operations struct {
	ctx     context.Context // ends all of them
	since   time.Time
	running sync.WaitGroup

	mu   sync.Mutex
	list []*operation // guarded by mu; the newest first
}

func newOperations(ctx context.Context) *operations { return &operations{ctx: ctx, since: time.Now()} }

// start runs an operation in the background: until it is done, is stopped, or the Dashboard is closed.
func (l *operations) start(o *operation, run func(ctx context.Context) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	running := 0
	for _, other := range l.list {
		if other.State() == "running" {
			running++
		}
	}
	switch {
	case l.ctx.Err() != nil:
		return &statusError{http.StatusServiceUnavailable, "this process is about to end"}
	case running >= maxRunning:
		return &statusError{http.StatusServiceUnavailable, "too many operations are running: wait for one, or stop it"}
	}
	var ctx context.Context
	ctx, o.cancel = context.WithCancel(l.ctx)
	l.remember(o)
	l.running.Go(func() { // ended by cancel, waited for by wait
		defer o.cancel()
		err := run(ctx)
		o.finish(outcomeOf(ctx, err), err)
	})
	return nil
}

// add remembers an operation that is done.
func (l *operations) add(o *operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remember(o)
	o.finish("done", nil)
}

// remember adds an operation that begins. It drops the oldest that have ended, and of examinations all but the last.
func (l *operations) remember(o *operation) {
	o.ID, o.Began, o.ended = rand.Text(), time.Now(), make(chan struct{})
	kept := map[bool]int{} // of examinations, and of others
	l.list = slices.DeleteFunc(slices.Insert(l.list, 0, o), func(o *operation) bool {
		examination, most := o.Action == "examine", maxEnded
		if examination {
			most = 1
		}
		kept[examination]++
		return kept[examination] > most && o.State() != "running"
	})
}

// all are those that are known, the newest first.
func (l *operations) all() []*operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// find returns nil if this process does not know the operation.
func (l *operations) find(id string) *operation {
	for _, o := range l.all() {
		if o.ID == id {
			return o
		}
	}
	return nil
}

// wait waits until all have ended, once their context has: a request that starts one meanwhile holds mu, or finds the context ended.
func (l *operations) wait() {
	l.mu.Lock()
	l.mu.Unlock() //nolint:staticcheck // see above
	l.running.Wait()
}

var errUnknownOperation = &statusError{http.StatusNotFound, "this process does not know the operation"}

// stop stops an operation between two steps.
func (d *Dashboard) stop(w http.ResponseWriter, q *request) error {
	o := d.operations.find(q.query.Get("id"))
	switch {
	case o == nil:
		return errUnknownOperation
	case o.State() != "running":
	case !q.access.allows(o.needs):
		return &statusError{http.StatusForbidden, "you may not do this"}
	default:
		o.cancel()
		d.audit(q, "stop", "done", nil, watermill.LogFields{"operation": o.Action, "topic": o.Topic, "messages": o.What})
	}
	d.toOperation(w, q, o)
	return nil
}

// MayStop reports whether it runs, and a user with this access may stop it.
func (o *operation) MayStop(a Access) bool { return o.State() == "running" && a.allows(o.needs) }

// operationsPage lists the operations of this process.
func (d *Dashboard) operationsPage(context.Context, *request) (page, error) {
	return page{Name: "operations", Title: "Operations", live: true, Data: pairs("Since", d.operations.since, "List", d.operations.all())}, nil
}

// operationPage shows how far an operation is.
func (d *Dashboard) operationPage(_ context.Context, q *request) (page, error) {
	o := d.operations.find(q.query.Get("id"))
	p := page{Name: "operation", Title: "Operation", live: true}
	switch {
	case o != nil && o.Action == "examine":
		return page{to: "doctor"}, nil
	case o != nil:
		p.Data = pairs("Operation", o)
		return p, nil
	case q.query.Get("action") == "":
		return page{}, errUnknownOperation
	}
	rest := maps.Clone(q.query)
	rest.Del("id")
	p.Data = pairs("Lost", rest.Encode()) // the query of the confirmation of the rest
	return p, nil
}

// doctorPage shows what the last examination has found.
func (d *Dashboard) doctorPage(context.Context, *request) (page, error) {
	return page{Name: "doctor", Title: "Doctor", live: true, Data: d.examination()}, nil
}

// examination is the last one; nil if there was none.
func (d *Dashboard) examination() *operation {
	for _, o := range d.operations.all() {
		if o.Action == "examine" {
			return o
		}
	}
	return nil
}

// examine starts an examination, unless one runs.
func (d *Dashboard) examine(w http.ResponseWriter, q *request) error {
	if o := d.examination(); o == nil || o.State() != "running" {
		o := &operation{Action: "examine", verb: "Examine", What: "all topics", Done: "examined", Actor: q.actor, needs: mayRead}
		if err := d.operations.start(o, func(ctx context.Context) error {
			return d.config.Admin.Examine(ctx, o.found, func(e admin.ExamineProgress) {
				o.update(func(now *status) { now.Examined = e })
			})
		}); err != nil {
			return err
		}
	}
	redirect(w, "doctor")
	return nil
}
