package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// topicPage shows a topic with its groups and consumers.
func (d *Dashboard) topicPage(ctx context.Context, q *request) (page, error) {
	stats, err := d.config.Admin.Stats(ctx, admin.StatsOptions{Topics: []string{q.topic()}, Details: true})
	if err != nil {
		return page{}, err
	}
	return page{Name: "topic", Title: q.topic(), live: true, Data: &stats[0]}, nil
}

// change is a change of a group, a topic or a schedule by a form.
type change struct {
	name  string // the last part of its path
	needs permission
	done  string // in its result: "Paused" in "Paused group mail"

	// do carries out the change and returns its fields for the log.
	do func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error)
}

var changes = []change{
	{"pause", mayPause, "Paused", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		lasts, err := q.duration("for")
		if err != nil {
			return nil, err
		}
		pause := redisdelay.Pause{For: lasts, By: q.actor, Reason: q.form.Get("reason")}
		about := watermill.LogFields{"for": lasts.String(), "reason": pause.Reason}
		return about, d.config.Admin.PauseGroup(ctx, q.topic(), cmp.Or(q.group(), redisdelay.AllGroups), pause)
	}},
	{"resume", mayPause, "Resumed", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		return nil, d.config.Admin.ResumeGroup(ctx, q.topic(), cmp.Or(q.group(), redisdelay.AllGroups))
	}},
	{"limit", mayLimit, "Set the limits of", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		limits, err := q.limits()
		if err != nil {
			return nil, err
		}
		return watermill.LogFields{"limits": limits}, d.config.Admin.LimitGroup(ctx, q.topic(), q.group(), limits)
	}},
	{"retire", mayRetire, "Retired", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		if err := errors.Join(requireGroup(q), requireConfirmation(q, q.group())); err != nil {
			return nil, err
		}
		options := redisdelay.RetireOptions{Force: q.form.Get("force") != ""}
		_, err := d.config.Admin.RetireGroup(ctx, q.topic(), q.group(), options)
		return watermill.LogFields{"force": options.Force}, err
	}},
	{"restore", mayRetire, "Restored", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		if err := requireGroup(q); err != nil {
			return nil, err
		}
		return nil, d.config.Admin.RestoreGroup(ctx, q.topic(), q.group())
	}},
	{"delete", mayDelete, "Deleted", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		if err := requireConfirmation(q, q.topic()); err != nil {
			return nil, err
		}
		options := admin.DeleteOptions{Force: q.form.Get("force") != ""}
		return watermill.LogFields{"force": options.Force}, d.config.Admin.DeleteTopic(ctx, q.topic(), options)
	}},
	{"schedule-pause", maySchedules, "Paused", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		return nil, d.config.Scheduler.Pause(ctx, q.schedule(), redisdelay.Pause{By: q.actor, Reason: q.form.Get("reason")})
	}},
	{"schedule-resume", maySchedules, "Resumed", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		return nil, d.config.Scheduler.Resume(ctx, q.schedule())
	}},
	{"schedule-trigger", maySchedules, "Triggered", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		return nil, d.config.Scheduler.Trigger(ctx, q.schedule())
	}},
	{"schedule-remove", maySchedules, "Removed", func(ctx context.Context, d *Dashboard, q *request) (watermill.LogFields, error) {
		if err := requireConfirmation(q, q.schedule()); err != nil {
			return nil, err
		}
		return nil, d.config.Scheduler.Remove(ctx, q.schedule())
	}},
}

// of returns what is changed, and the URL of the page to return to.
func (c change) of(q *request) (what, back string) {
	back = "topic?topic=" + url.QueryEscape(q.topic()) + "&"
	switch id := q.schedule(); {
	case id != "":
		return "schedule " + id, "schedules?"
	case c.name == "delete":
		return "topic " + q.topic(), "./?"
	case q.group() != "":
		return "group " + q.group(), back
	}
	return "all groups", back
}

// serve carries out the change and redirects to a page that reports it. The change continues if the client disconnects; only
// Close ends it.
func (c change) serve(d *Dashboard) func(w http.ResponseWriter, q *request) error {
	return func(w http.ResponseWriter, q *request) error {
		if d.config.Scheduler == nil && strings.HasPrefix(c.name, "schedule-") {
			return errNoSchedules
		}
		ctx, cancel := context.WithTimeout(d.ended, 10*time.Minute)
		defer cancel()
		about, err := c.do(ctx, d, q)
		var wrong *fieldError
		if errors.As(err, &wrong) {
			return err
		}
		d.cache.clear()
		what, back := c.of(q)
		o := &operation{Action: c.name, verb: c.done, What: what, Topic: q.topic(), Actor: q.actor}
		d.audit(q, o.Action, outcomeOf(ctx, err), err, watermill.LogFields{"topic": o.Topic, "of": what}.Add(about))
		if err != nil {
			return err
		}
		d.operations.add(o)
		redirect(w, back+"did="+o.ID)
		return nil
	}
}

// limits returns the limits of a form; the zero value removes those of the group.
func (q *request) limits() (redisdelay.GroupLimits, error) {
	limits := redisdelay.GroupLimits{HaltsKeys: q.form.Get("halts-keys") != ""}
	var errs [4]error
	limits.MaxInFlight, errs[0] = number(q.form, "max-in-flight")
	limits.Rate.Messages, errs[1] = number(q.form, "rate")
	limits.Rate.Per, errs[2] = q.duration("per")
	limits.Rate.Burst, errs[3] = number(q.form, "burst")
	if limits.Rate.Messages == 0 { // without a rate, its period has no effect
		limits.Rate = redisdelay.Rate{}
	}
	return limits, errors.Join(append(errs[:], requireGroup(q))...)
}

// requireConfirmation returns an error unless the user has typed the name as the page shows it.
func requireConfirmation(q *request, name string) error {
	if typed := q.form.Get("name"); typed != humanize.Clean(name) {
		return badField("name", typed, humanize.Clean(name)+" to confirm")
	}
	return nil
}

// requireGroup returns an error if the form has no group.
func requireGroup(q *request) error {
	if q.group() == "" {
		return badField("group", "", "the name of a group")
	}
	return nil
}
