package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stepTime is how long one step of an act may take, and stepGrace how long it may go on after the
// end of the act's context, so that it is known what the step has done unless Redis hangs.
const (
	stepTime  = 30 * time.Second
	stepGrace = 250 * time.Millisecond
)

// performance is an act under way.
type performance struct {
	act
	progress Progress
	tell     func(Progress)
}

// perform carries out an act on the messages that a selection names.
func (a *Admin) perform(ctx context.Context, topic string, which Selection, what act, progress func(Progress)) (Progress, error) {
	p := &performance{act: what, tell: progress}
	err := which.validate(what)
	switch {
	case err != nil:
	case which.Matching != nil:
		err = p.matching(ctx, a, topic, *which.Matching)
	default:
		err = p.named(ctx, a, topic, which)
	}
	return p.progress, leave(err, "%s in %q", what.verb, topic)
}

func (s Selection) validate(what act) error {
	named := len(s.IDs) + len(s.Keys)
	switch {
	case named == 0 && s.Matching == nil:
		return &QueryError{"Matching", "is nil, and there are no IDs or Keys"}
	case named > 0 && s.Matching != nil:
		return &QueryError{"Matching", "is set, and so are IDs or Keys"}
	case s.Group != "" && s.Matching != nil:
		return &QueryError{"Group", "is set beside Matching, which has its own"}
	case s.Group != "" && what.everyGroup:
		return &QueryError{"Group", "is set, but this act is for all groups of a message"}
	case slices.Contains(s.IDs, "") || slices.Contains(s.Keys, ""):
		return &QueryError{"IDs", "has an empty one, or Keys has"}
	case s.Matching != nil && s.Matching.In != "" && !slices.Contains(what.in, s.Matching.In):
		return &QueryError{"In", fmt.Sprintf("is %q, but this act is for %q", s.Matching.In, what.in)}
	}
	return nil
}

// matching acts on all that a query matches.
func (p *performance) matching(ctx context.Context, a *Admin, topic string, q Query) error {
	if q.In == "" {
		q.In = p.in[0]
	}
	t, err := a.open(ctx, topic)
	if err != nil {
		return err
	}
	mark, err := p.marked(t.roster.Now.UnixMilli(), &q)
	if err != nil {
		return err
	}
	err = a.walk(ctx, topic, q, p.bytes, func(s step) error {
		looked := len(s.entries)
		left, others, err := inStep(ctx, func(ctx context.Context) ([]skipped, int, error) { return p.step(ctx, s, mark) })
		if err != nil {
			return err
		}
		p.progress.Cursor = strconv.FormatInt(mark, 10) + "." + s.cursor
		p.add(looked-others-len(left), left)
		return nil
	})
	switch {
	case err == nil:
		p.progress.Cursor = ""
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return err
}

// marked returns the mark of an act, and takes it out of the cursor if it continues
// another.
func (p *performance) marked(now int64, q *Query) (int64, error) {
	if q.Cursor == "" {
		return p.mark(now), nil
	}
	text, rest, found := strings.Cut(q.Cursor, ".")
	mark, err := strconv.ParseInt(text, 10, 64)
	if !found || err != nil {
		return 0, &QueryError{"Cursor", "is not that of an act's Progress"}
	}
	q.Cursor = rest
	return mark, nil
}

// named acts on messages by their ids and keys.
func (p *performance) named(ctx context.Context, a *Admin, topic string, which Selection) error {
	t, err := a.open(ctx, topic)
	if err != nil {
		return err
	}
	where := places{topic: t.Topic, groups: t.roster.Groups}
	if which.Group != "" {
		if !slices.Contains(t.roster.All(), which.Group) {
			return fmt.Errorf("%w: %q", ErrGroupNotFound, which.Group)
		}
		where.groups = []string{which.Group}
	}
	mark := p.mark(t.roster.Now.UnixMilli())
	for some := range slices.Chunk(unique(which.IDs), p.most) {
		left, _, err := inStep(ctx, func(ctx context.Context) ([]skipped, int, error) {
			left, err := p.ids(ctx, where, some, mark)
			return left, 0, err
		})
		if err != nil {
			return err
		}
		p.add(len(some)-len(left), left)
	}
	return p.keyed(ctx, where, unique(which.Keys), mark)
}

// keyed acts on messages by their keys.
func (p *performance) keyed(ctx context.Context, where places, keys []string, mark int64) error {
	for _, key := range keys {
		_, _, err := inStep(ctx, func(ctx context.Context) ([]skipped, int, error) {
			return nil, 0, p.key(ctx, where, key, mark)
		})
		switch {
		case err == nil:
			p.add(1, nil)
		case isSkipped(err):
			p.add(0, []skipped{{key, err}})
		default:
			return err
		}
	}
	return nil
}

// inStep makes the calls of one step, unless ctx has ended before. They end stepGrace after ctx.
func inStep(ctx context.Context, do func(ctx context.Context) ([]skipped, int, error)) ([]skipped, int, error) {
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stepGrace, cancel) })()
	left, others, err := do(longer)
	if err != nil && longer.Err() != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return left, others, err
}

// add counts a step, and tells about it if it was for any message.
func (p *performance) add(done int, left []skipped) {
	p.progress.Done += done
	p.progress.Skipped += len(left)
	if n := len(left); n > 0 {
		p.progress.Last = fmt.Errorf("message %q: %w", left[n-1].name, left[n-1].why)
	}
	if p.tell != nil && done+len(left) > 0 {
		p.tell(p.progress)
	}
}

// unique are names without those that come again.
func unique(names []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
}
