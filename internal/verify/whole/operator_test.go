package whole

import (
	"context"
	"errors"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

// operated is the group that operators pause, limit and retire.
const operated = "guest"

// operator is at work with package admin.
type operator struct {
	w       *world
	process *process
	admin   *admin.Admin
	limit   time.Duration
}

func (w *world) operator(name string, limit time.Duration) *operator {
	p := w.process(name)
	a, err := admin.New(admin.Config{Client: p.client})
	if err != nil {
		w.fail("call", "admin.New: %v", err)
	}
	return &operator{w, p, a, limit}
}

func (w *world) operate() {
	plan := w.plan.Operator
	if plan.Every == 0 {
		return
	}
	o, r := w.operator("operator", plan.Limit), w.rng("operator")
	actions := []action{
		{plan.Pause, func() { o.pause(between(r, 100*time.Millisecond, 2*time.Second)) }},
		{plan.Rate, func() { o.rate(between(r, time.Second, 3*time.Second)) }},
		{plan.Retire, func() { o.retire(between(r, 100*time.Millisecond, 2*time.Second)) }},
		{plan.Examine, func() { o.examine(func(admin.Finding) {}) }},
		{plan.Read, o.read},
		{plan.Requeue, func() { o.requeue() }},
	}
	for w.rest(between(r, 0, 2*plan.Every)) {
		choose(r, actions)
	}
}

func (o *operator) call(name string, do func(ctx context.Context) error) bool {
	err := o.w.call(o.process, name, o.limit, do, redisdelay.ErrGroupNotFound, redisdelay.ErrTopicNotFound)
	return err == nil || errors.Is(err, redisdelay.ErrGroupNotFound)
}

// until makes a call that ends what another has begun, until it succeeds.
func (o *operator) until(name string, do func(ctx context.Context) error) {
	for !o.call(name, do) {
		wait(time.Second)
	}
}

func (o *operator) pause(lasts time.Duration) {
	o.w.trouble(operated, time.Hour)
	o.call("Pause", func(ctx context.Context) error {
		return o.admin.PauseGroup(ctx, topic, operated, redisdelay.Pause{By: "the simulation"})
	})
	wait(lasts)
	o.until("Resume", func(ctx context.Context) error { return o.admin.ResumeGroup(ctx, topic, operated) })
	o.w.untroubled(operated)
}

func (o *operator) rate(lasts time.Duration) {
	o.w.trouble(operated, time.Hour)
	limits := redisdelay.GroupLimits{MaxInFlight: 6, Rate: redisdelay.Rate{Messages: 6, Per: 2 * time.Second}}
	o.call("LimitGroup", func(ctx context.Context) error { return o.admin.LimitGroup(ctx, topic, operated, limits) })
	wait(lasts)
	o.until("LimitGroup", func(ctx context.Context) error {
		return o.admin.LimitGroup(ctx, topic, operated, redisdelay.GroupLimits{})
	})
	o.w.untroubled(operated)
}

// retire retires the group, and restores it. The group loses what it has, and what falls due
// until its consumers have noticed that it is back.
func (o *operator) retire(lasts time.Duration) {
	o.w.trouble(operated, time.Hour)
	o.call("RetireGroup", func(ctx context.Context) error {
		_, err := o.admin.RetireGroup(ctx, topic, operated, redisdelay.RetireOptions{Force: true})
		return err
	})
	wait(lasts)
	o.until("RestoreGroup", func(ctx context.Context) error { return o.admin.RestoreGroup(ctx, topic, operated) })
	o.w.lose(operated, 2*pollInterval)
	o.w.untroubled(operated)
	o.w.trouble(operated, 2*pollInterval)
}

func (o *operator) examine(found func(admin.Finding)) {
	o.call("Examine", func(ctx context.Context) error { return o.admin.Examine(ctx, found, nil) })
}

func (o *operator) read() {
	o.call("Topics", func(ctx context.Context) error { _, err := o.admin.Topics(ctx); return err })
	o.call("Stats", func(ctx context.Context) error { _, err := o.admin.Stats(ctx, admin.StatsOptions{}); return err })
	o.call("Stats with details", func(ctx context.Context) error {
		_, err := o.admin.Stats(ctx, admin.StatsOptions{Details: true})
		return err
	})
	_ = o.w.call(o.process, "Drain", o.limit, func(ctx context.Context) error { return o.admin.DrainGroup(ctx, topic, operated, nil) },
		redisdelay.ErrGroupNotFound, redisdelay.ErrTopicNotFound, context.DeadlineExceeded)
	o.call("Groups", func(ctx context.Context) error { _, err := o.admin.Groups(ctx, topic); return err })
	o.call("Upcoming", func(ctx context.Context) error {
		_, err := o.admin.Upcoming(ctx, topic, admin.UpcomingQuery{})
		return err
	})
	o.call("Entries", func(ctx context.Context) error { _, err := o.admin.Entries(ctx, topic, admin.Query{}); return err })
}

func (o *operator) requeue() bool {
	return o.call("Requeue", func(ctx context.Context) error {
		_, err := o.admin.Requeue(ctx, topic, admin.Matching(admin.Query{Set: admin.Dead}), nil)
		return err
	})
}

// untroubled ends the troubles of a scope that have no end yet; the consumers have a moment to
// notice.
func (l *ledger) untroubled(scope string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for i := range l.troubles {
		if t := &l.troubles[i]; t.scope == scope && t.to.After(now.Add(time.Minute)) {
			t.to = now.Add(time.Second)
		}
	}
}
