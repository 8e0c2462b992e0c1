package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stepTime is how long one step of an operation may take, and stepGrace how long it may go on
// after the end of the operation's context, so that it is known what the step has done unless Redis hangs.
const (
	stepTime  = 30 * time.Second
	stepGrace = 250 * time.Millisecond
)

// bulkRun is an operation under way.
type bulkRun struct {
	operation
	progress Progress
	report   func(Progress)
}

// run carries out an operation on the selected messages.
func (a *Admin) run(ctx context.Context, topic string, which Selection, op operation, progress func(Progress)) (Progress, error) {
	r := &bulkRun{operation: op, report: progress}
	err := which.validate(op)
	switch {
	case err != nil:
	case which.query != nil:
		err = r.matching(ctx, a, topic, *which.query)
	default:
		err = r.named(ctx, a, topic, which)
	}
	return r.progress, wrap(err, "%s in %q", op.verb, topic)
}

func (s Selection) validate(op operation) error {
	switch {
	case s.group != "" && op.everyGroup:
		return &QueryError{"Group", "is set, but " + op.verb + " is for all groups of a message"}
	case slices.Contains(s.ids, ""):
		return &QueryError{"ID", "is empty"}
	case slices.Contains(s.keys, ""):
		return &QueryError{"Key", "is empty"}
	case s.query != nil && s.query.In != "" && !slices.Contains(op.sets, s.query.In):
		return &QueryError{"In", fmt.Sprintf("is %q, but %s is for %q", s.query.In, op.verb, op.sets)}
	}
	return nil
}

// matching is for all that a query matches.
func (r *bulkRun) matching(ctx context.Context, a *Admin, topic string, q Query) error {
	if q.In == "" {
		q.In = r.sets[0]
	}
	t, err := a.open(ctx, topic)
	if err != nil {
		return err
	}
	cutoff, err := r.cutoffOf(t.roster.Now.UnixMilli(), &q)
	if err != nil {
		return err
	}
	err = a.walk(ctx, topic, q, r.bytes, func(s step) error {
		looked := len(s.entries)
		skips, others, err := inStep(ctx, func(ctx context.Context) ([]skip, int, error) { return r.step(ctx, s, cutoff) })
		if err != nil {
			return err
		}
		r.progress.Cursor = strconv.FormatInt(cutoff, 10) + "." + s.cursor
		r.add(looked-others-len(skips), skips)
		return nil
	})
	switch {
	case err == nil:
		r.progress.Cursor = ""
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return err
}

// cutoffOf returns the cutoff, and takes it out of the cursor of an operation that is resumed.
func (r *bulkRun) cutoffOf(now int64, q *Query) (int64, error) {
	if q.Cursor == "" {
		return r.cutoff(now), nil
	}
	text, rest, found := strings.Cut(q.Cursor, ".")
	cutoff, err := strconv.ParseInt(text, 10, 64)
	if !found || err != nil {
		return 0, &QueryError{"Cursor", "is not that of a Progress"}
	}
	q.Cursor = rest
	return cutoff, nil
}

// named is for messages by their ids or keys.
func (r *bulkRun) named(ctx context.Context, a *Admin, topic string, which Selection) error {
	t, err := a.open(ctx, topic)
	if err != nil {
		return err
	}
	where := places{topic: t.Topic, groups: t.roster.Groups}
	if which.group != "" {
		if !slices.Contains(t.roster.All(), which.group) {
			return fmt.Errorf("%w: %q", ErrGroupNotFound, which.group)
		}
		where.groups = []string{which.group}
	}
	cutoff := r.cutoff(t.roster.Now.UnixMilli())
	for some := range slices.Chunk(unique(which.ids), r.maxIDs) {
		skips, _, err := inStep(ctx, func(ctx context.Context) ([]skip, int, error) {
			skips, err := r.ids(ctx, where, some, cutoff)
			return skips, 0, err
		})
		if err != nil {
			return err
		}
		r.add(len(some)-len(skips), skips)
	}
	return r.keyed(ctx, where, unique(which.keys), cutoff)
}

// keyed is for messages by their keys.
func (r *bulkRun) keyed(ctx context.Context, where places, keys []string, cutoff int64) error {
	for _, key := range keys {
		_, _, err := inStep(ctx, func(ctx context.Context) ([]skip, int, error) {
			return nil, 0, r.key(ctx, where, key, cutoff)
		})
		switch {
		case err == nil:
			r.add(1, nil)
		case isSkipped(err):
			r.add(0, []skip{{key, err}})
		default:
			return err
		}
	}
	return nil
}

// inStep makes the calls of one step, unless ctx has ended before. They end stepGrace after ctx.
func inStep(ctx context.Context, do func(ctx context.Context) ([]skip, int, error)) ([]skip, int, error) {
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stepGrace, cancel) })()
	skips, others, err := do(longer)
	if err != nil && longer.Err() != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return skips, others, err
}

// add counts a step, and reports it if it was for any message.
func (r *bulkRun) add(done int, skips []skip) {
	r.progress.Done += done
	r.progress.Skipped += len(skips)
	if n := len(skips); n > 0 {
		r.progress.Last = fmt.Errorf("message %q: %w", skips[n-1].name, skips[n-1].why)
	}
	if r.report != nil && done+len(skips) > 0 {
		r.report(r.progress)
	}
}

// unique are names, each once.
func unique(names []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		repeated := seen[name]
		seen[name] = true
		return repeated
	})
}
