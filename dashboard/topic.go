package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"path"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

// topicData is a topic.
type topicData struct {
	admin.TopicStats
	Late []lateGroup
}

// topicPage shows a topic with its groups and consumers.
func (d *Dashboard) topicPage(ctx context.Context, q *request) (page, error) {
	topic := q.topic()
	stats, err := d.config.Admin.Stats(ctx, admin.StatsOptions{Topics: []string{topic}, Details: true})
	if err != nil {
		return page{}, err
	}
	data := topicData{TopicStats: stats[0], Late: lateOf([]*admin.TopicStats{&stats[0]})}
	return page{name: "topic", title: topic, live: true, data: data}, nil
}

// pause pauses a group, or all groups of a topic.
func (d *Dashboard) pause(w http.ResponseWriter, q *request) error {
	lasts, err := q.duration("for")
	if err != nil {
		return err
	}
	options := redisdelay.Pause{For: lasts, By: q.actor, Reason: q.form.Get("reason")}
	return d.changeGroup(w, q, "Paused", watermill.LogFields{"for": lasts.String(), "reason": options.Reason}, func(ctx context.Context) error {
		return d.config.Admin.Pause(ctx, q.topic(), cmp.Or(q.group(), redisdelay.AllGroups), options)
	})
}

// resume ends a pause.
func (d *Dashboard) resume(w http.ResponseWriter, q *request) error {
	return d.changeGroup(w, q, "Resumed", nil, func(ctx context.Context) error {
		return d.config.Admin.Resume(ctx, q.topic(), cmp.Or(q.group(), redisdelay.AllGroups))
	})
}

// limit sets the limits of a group; without any, it has none.
func (d *Dashboard) limit(w http.ResponseWriter, q *request) error {
	limits := redisdelay.GroupLimits{HaltsKeys: q.form.Get("halts-keys") != ""}
	err := hasGroup(q)
	if err != nil {
		return err
	}
	if limits.MaxInFlight, err = q.number("max-in-flight"); err != nil {
		return err
	}
	if limits.Rate.Messages, err = q.number("rate"); err != nil {
		return err
	}
	if limits.Rate.Per, err = q.duration("per"); err != nil {
		return err
	}
	if limits.Rate.Burst, err = q.number("burst"); err != nil {
		return err
	}
	if limits.Rate.Messages == 0 { // a rate that is not there has no period
		limits.Rate = redisdelay.Rate{}
	}
	return d.changeGroup(w, q, "Set the limits of", watermill.LogFields{"limits": limits}, func(ctx context.Context) error {
		return d.config.Admin.LimitGroup(ctx, q.topic(), q.group(), limits)
	})
}

// retire takes a group off the topic. A user who has typed its name means it.
func (d *Dashboard) retire(w http.ResponseWriter, q *request) error {
	if err := errors.Join(hasGroup(q), confirmed(q, q.group())); err != nil {
		return err
	}
	options := redisdelay.RetireOptions{Force: q.form.Get("force") != ""}
	return d.changeGroup(w, q, "Retired", watermill.LogFields{"force": options.Force}, func(ctx context.Context) error {
		_, err := d.config.Admin.RetireGroup(ctx, q.topic(), q.group(), options)
		return err
	})
}

// restore takes back that a group is retired.
func (d *Dashboard) restore(w http.ResponseWriter, q *request) error {
	if err := hasGroup(q); err != nil {
		return err
	}
	return d.changeGroup(w, q, "Restored", nil, func(ctx context.Context) error {
		return d.config.Admin.RestoreGroup(ctx, q.topic(), q.group())
	})
}

// deleteTopic removes a topic. A user who has typed its name means it.
func (d *Dashboard) deleteTopic(w http.ResponseWriter, q *request) error {
	if err := confirmed(q, q.topic()); err != nil {
		return err
	}
	options := admin.DeleteOptions{Force: q.form.Get("force") != ""}
	return d.change(w, q, "Deleted", "topic "+q.topic(), "./?", watermill.LogFields{"force": options.Force}, func(ctx context.Context) error {
		return d.config.Admin.DeleteTopic(ctx, q.topic(), options)
	})
}

// confirmed refuses a form that does not name what it is for, as the page shows it.
func confirmed(q *request, name string) error {
	if typed := q.form.Get("name"); typed != shown(name) {
		return badField("name", typed, shown(name)+" to confirm")
	}
	return nil
}

// changeGroup changes a group, or all groups of a topic, and goes back to the topic's page.
func (d *Dashboard) changeGroup(w http.ResponseWriter, q *request, done string, about watermill.LogFields, do func(ctx context.Context) error) error {
	what := "all groups"
	if q.group() != "" {
		what = "group " + q.group()
	}
	return d.change(w, q, done, what, "topic?topic="+escape(q.topic())+"&", about, do)
}

// change carries out a change until it has ended, also if the reader does not wait for it: only Close ends it. Then it goes back to
// a page, which says what was done.
func (d *Dashboard) change(w http.ResponseWriter, q *request, done, what, back string, about watermill.LogFields, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(d.ended, 10*time.Minute)
	defer cancel()
	err := do(ctx)
	d.cache.clear()
	o := &operation{Action: path.Base(q.URL.Path), Done: done, What: what, Topic: q.topic(), Actor: q.actor, change: true}
	d.audit(q, o.Action, outcomeOf(ctx, err), err, watermill.LogFields{"topic": o.Topic, "of": what}.Add(about))
	if err != nil {
		return err
	}
	d.operations.add(o)
	redirect(w, back+"did="+o.ID)
	return nil
}

// hasGroup refuses a change of a group that is not named.
func hasGroup(q *request) error {
	if q.group() == "" {
		return badField("group", "", "the name of a group")
	}
	return nil
}
