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

const (
	maxRunning  = 16  // operations that run at once
	maxEnded    = 100 // finished operations in the list
	maxFindings = 200 // stored findings of an examination, per severity
)

// operation is a bulk operation, an examination by the doctor, or a completed change. It continues after the page that
// started it is closed.
type operation struct {
	// immutable once it has started
	ID, Action, Topic, Actor string
	verb, What               string // for the title: "Cancel" and "all scheduled messages", or "Paused" and "group mail"
	Done                     string // what happens to its messages, such as "cancelled"; "" for a change of a group, a topic or a schedule
	Total                    int    // messages when it started; 0: unknown
	Began                    time.Time
	needs                    permission
	deletesMessage           bool       // so the page of its message no longer exists
	confirm                  url.Values // query of the confirmation page that can resume it, without the cursor; nil if it cannot be resumed
	cancel                   context.CancelFunc
	ended                    chan struct{} // closed when the operation ends

	mu  sync.Mutex
	now status // guarded by mu
}

// status is the progress and the result of an operation.
type status struct {
	Progress admin.Progress
	Examined admin.ExamineProgress
	End      time.Time // zero while it runs
	Err      error     // why it failed
	outcome  string    // its State after the end

	findings []admin.Finding
	counts   [3]int // findings by severityRank, including those not stored
}

// Now returns the current status.
func (o *operation) Now() status {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

// Query returns the query of the operation's page. If another process serves the page, the query is all it needs to
// offer to resume the operation.
func (o *operation) Query() string {
	values := o.resumeValues()
	values.Set("id", o.ID)
	return values.Encode()
}

// ConfirmQuery returns the query of the page that confirms resuming the operation; "" if there is nothing to resume.
func (o *operation) ConfirmQuery() string {
	if values := o.resumeValues(); o.confirm != nil && values.Has("cursor") && o.State() != "running" {
		return values.Encode()
	}
	return ""
}

// resumeValues returns the confirmation query with the current cursor and the number of remaining messages; empty if
// the operation is done.
func (o *operation) resumeValues() url.Values {
	values := url.Values{}
	if o.State() == "done" {
		return values
	}
	maps.Copy(values, o.confirm)
	if p := o.Now().Progress; p.Cursor != "" {
		values.Set("cursor", p.Cursor)
		values.Set("left", strconv.Itoa(max(0, o.Total-p.Done-p.Skipped)))
	}
	return values
}

// Percent returns the progress, 0 to 100.
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

// Pace returns the rate and the estimated remaining time as a sentence; "" in the first second.
func (o *operation) Pace() string {
	p, took := o.Now().Progress, time.Since(o.Began)
	done := float64(p.Done + p.Skipped)
	if done == 0 || took < time.Second {
		return ""
	}
	left := (float64(o.Total) - done) / done * float64(took)
	return humanize.Number(int(done/took.Seconds())) + " messages per second, about " + humanize.Duration(time.Duration(max(0, left))) + " left. "
}

// State returns "running", "done", "stopped" or "failed".
func (o *operation) State() string { return cmp.Or(o.Now().outcome, "running") }

// outcomeOf returns the State of an operation that ended with err.
func outcomeOf(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "done"
	case ctx.Err() != nil:
		return "stopped"
	}
	return "failed"
}

// Title returns the title, such as "Cancel all scheduled messages".
func (o *operation) Title() string { return o.verb + " " + o.What }

// Outcome returns the progress, such as "1,600 of 4,700 messages cancelled"; "" for a change, whose Title says it all.
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

// Findings returns the doctor's findings, the worst first.
func (o *operation) Findings() []admin.Finding {
	worst := func(a, b admin.Finding) int { return severityRank(b.Severity) - severityRank(a.Severity) }
	return slices.SortedStableFunc(slices.Values(o.Now().findings), worst)
}

// ByCheck returns the problems and warnings grouped by check, the worst first.
func (o *operation) ByCheck() (checks [][]admin.Finding) {
	for _, f := range o.Findings() {
		i := slices.IndexFunc(checks, func(same []admin.Finding) bool { return same[0].Check == f.Check })
		switch {
		case f.Severity == admin.SeverityInfo:
		case i < 0:
			checks = append(checks, []admin.Finding{f})
		default:
			checks[i] = append(checks[i], f)
		}
	}
	return checks
}

// CountOf returns the number of findings of a severity.
func (o *operation) CountOf(severity admin.Severity) int {
	return o.Now().counts[severityRank(severity)]
}

// Omitted returns the number of findings that are not stored.
func (o *operation) Omitted() int {
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

// operations has the operations of this process.
type operations struct {
	ctx     context.Context // its end stops all operations
	since   time.Time
	running sync.WaitGroup

	mu   sync.Mutex
	list []*operation // guarded by mu; newest first
}

func newOperations(ctx context.Context) *operations { return &operations{ctx: ctx, since: time.Now()} }

// start runs an operation in the background until it finishes, a user stops it, or the Dashboard is closed.
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

// add lists a completed operation.
func (l *operations) add(o *operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remember(o)
	o.finish("done", nil)
}

// remember lists an operation. It drops the oldest finished operations, and all finished examinations but the last.
func (l *operations) remember(o *operation) {
	o.ID, o.Began, o.ended = rand.Text(), time.Now(), make(chan struct{})
	kept := map[bool]int{} // true: examinations, false: other operations
	l.list = slices.DeleteFunc(slices.Insert(l.list, 0, o), func(o *operation) bool {
		examination, most := o.Action == "examine", maxEnded
		if examination {
			most = 1
		}
		kept[examination]++
		return kept[examination] > most && o.State() != "running"
	})
}

// all returns the listed operations, newest first.
func (l *operations) all() []*operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// find returns the operation with an ID; nil if this process does not have it.
func (l *operations) find(id string) *operation {
	for _, o := range l.all() {
		if o.ID == id {
			return o
		}
	}
	return nil
}

// wait waits for all operations after their context has ended. A request that starts one meanwhile holds mu, or finds
// the context ended.
func (l *operations) wait() {
	l.mu.Lock()
	l.mu.Unlock() //nolint:staticcheck // see above
	l.running.Wait()
}

var errUnknownOperation = &statusError{http.StatusNotFound, "this process does not know the operation"}

// stop serves the request to stop an operation. The operation ends after its current step.
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

// MayStop reports whether the operation runs and a user with this access may stop it.
func (o *operation) MayStop(a Access) bool { return o.State() == "running" && a.allows(o.needs) }

// operationsPage lists the operations of this process.
func (d *Dashboard) operationsPage(context.Context, *request) (page, error) {
	return page{Name: "operations", Title: "Operations", live: true, Data: pairs("Since", d.operations.since, "List", d.operations.all())}, nil
}

// operationPage shows an operation.
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
	p.Data = pairs("Lost", rest.Encode()) // the query of the confirmation page
	return p, nil
}

// doctorPage shows the findings of the last examination.
func (d *Dashboard) doctorPage(context.Context, *request) (page, error) {
	return page{Name: "doctor", Title: "Doctor", live: true, Data: d.examination()}, nil
}

// examination returns the last examination; nil if there was none.
func (d *Dashboard) examination() *operation {
	for _, o := range d.operations.all() {
		if o.Action == "examine" {
			return o
		}
	}
	return nil
}

// examine starts an examination unless one is running.
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
