// Package conformance judges programs that publish, in any language: it gives orders to a program, disturbs it, and
// looks into Redis at what the program has stored. docs/use/languages.md says how a program gets its orders.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Options say what to judge, and where.
type Options struct {
	Command []string
	Redis   string    // the URL of a server without TLS to use; "" to start one
	Cases   []string  // only these; nil for all
	Errors  io.Writer // gets what the program writes to its standard error

	answerWithin time.Duration // 0: the default
}

// Outcome says how a case ended.
type Outcome string

// How a case ends.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped" // the program does not support it, or the server cannot be disturbed so
)

// Result is what a case has shown.
type Result struct {
	Case     string   `json:"case"`
	About    string   `json:"about"`
	Outcome  Outcome  `json:"outcome"`
	Problems []string `json:"problems,omitempty"` // why it failed, or was skipped
}

// testCase is something that a publisher has to get right.
type testCase struct {
	name, about string
	run         func(ctx context.Context, j *judge)
}

// ErrUnknownCase says that no case has a name.
var ErrUnknownCase = errors.New("unknown case")

// Names are the names of all cases, in their order.
func Names() []string {
	var list []string
	for _, c := range cases {
		list = append(list, c.name)
	}
	return list
}

// Run runs the cases, and tells report each result. The error says why nothing could be judged.
func Run(ctx context.Context, o Options, report func(Result)) (err error) {
	for _, name := range o.Cases {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("%w %q", ErrUnknownCase, name)
		}
	}
	l, err := newLab(o) //nolint:contextcheck // a server starts within its own deadline
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }() //nolint:contextcheck // what is left is removed even if ctx has ended
	for _, c := range cases {
		if len(o.Cases) > 0 && !slices.Contains(o.Cases, c.name) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		report(l.run(ctx, c))
	}
	return nil
}

// lab is a server, and the proxy through which programs reach it.
type lab struct {
	options Options
	prefix  string
	server  *redistest.Server // nil if it is somebody else's
	client  *redis.Client     // not through the proxy
	url     string            // for programs
	proxy   *proxy
	store   *queue.Store
}

func newLab(o Options) (*lab, error) {
	if o.Errors != nil {
		o.Errors = &shared{to: o.Errors}
	}
	l := &lab{options: o, prefix: "conformance-" + ulid.Make().String()}
	address := o.Redis
	if address == "" {
		server, err := redistest.Start()
		if err != nil {
			return nil, fmt.Errorf("start a server (--redis would name one): %w", err)
		}
		l.server, address = server, "redis://"+server.Addr
	}
	if err := l.connect(address); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) connect(address string) error {
	options, err := redis.ParseURL(address)
	if err != nil {
		return err
	}
	if options.TLSConfig != nil || options.Network != "tcp" {
		return errors.New("want a server without TLS: redis://host:port")
	}
	l.client = redis.NewClient(options)
	if l.proxy, err = newProxy(options.Addr, options.DB); err != nil {
		return err
	}
	through, err := url.Parse(address)
	if err != nil {
		return err
	}
	through.Host = l.proxy.addr()
	l.url = through.String()
	l.store, err = queue.NewStore(l.client, l.prefix, observe.Observer{})
	return err
}

func (l *lab) close() error {
	var errs []error
	if l.proxy != nil {
		errs = append(errs, l.proxy.close())
	}
	if l.client != nil {
		if l.server == nil {
			errs = append(errs, l.sweep())
		}
		errs = append(errs, l.client.Close())
	}
	if l.server != nil {
		errs = append(errs, l.server.Stop())
	}
	return errors.Join(errs...)
}

// sweep removes what the cases have left on somebody else's server.
func (l *lab) sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	names, err := l.keys(ctx, "{"+l.prefix+":*")
	if err != nil || len(names) == 0 {
		return err
	}
	return l.client.Unlink(ctx, names...).Err()
}

func (l *lab) keys(ctx context.Context, pattern string) (names []string, err error) {
	all := l.client.Scan(ctx, 0, pattern, 1000).Iterator()
	for all.Next(ctx) {
		names = append(names, all.Val())
	}
	return names, all.Err()
}

// run runs a case with a program of its own.
func (l *lab) run(ctx context.Context, c testCase) Result {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	j := &judge{lab: l, topic: "case " + c.name}
	func() {
		defer j.recovered()
		j.program = j.start(ctx)
		c.run(ctx, j)
	}()
	j.endAll()
	l.proxy.loseReplies(0)
	for _, fault := range l.proxy.takeFaults() {
		j.wrong("%s", fault)
	}
	r := Result{Case: c.name, About: c.about, Outcome: Passed, Problems: j.problems}
	switch {
	case len(j.problems) > 0:
		r.Outcome = Failed
	case j.skipped != "":
		r.Outcome, r.Problems = Skipped, []string{j.skipped}
	}
	return r
}
