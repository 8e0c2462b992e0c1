package dashboard

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// An action is a bulk operation on selected messages, or on all messages that match a filter.
type action struct {
	Name  string // the last part of its path
	needs permission
	Verb  string      // text of its button
	Class string      // CSS class of its button
	Done  string      // in its result: "cancelled" in "12 messages cancelled"
	Sets  []admin.Set // of messages that it can change
	Field string      // label of its input field; "" for none
	Hint  string      // placeholder of the field
	timed bool        // the field is a time

	Effect      string // one sentence
	Destructive bool   // it deletes messages, which cannot be undone
	Whole       bool   // a selected message is changed in all groups, not only in the selected one
	WholeAll    bool   // likewise for messages that match a filter
	perGroup    bool   // on a message's page, the button is next to a group, not next to the message

	run func(a *admin.Admin, value string) bulk // value is that of the field
}

// bulk is a bulk operation of package admin.
type bulk func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error)

var actions = []action{
	{
		Name: "requeue", needs: mayRequeue, Verb: "Requeue", Class: "primary", Done: "requeued", Sets: []admin.Set{admin.Dead},
		perGroup: true,
		Effect:   "Requeued messages are delivered to their group again.",
		run:      func(a *admin.Admin, _ string) bulk { return a.Requeue },
	},
	{
		Name: "deliver-now", needs: mayReschedule, Verb: "Deliver now", Done: "made due", Sets: []admin.Set{admin.Scheduled, admin.Waiting},
		Whole:  true,
		Effect: "The messages become due now.",
		run:    func(a *admin.Admin, _ string) bulk { return a.DeliverNow },
	},
	{
		Name: "reschedule", needs: mayReschedule, Verb: "Reschedule", Done: "rescheduled", Sets: []admin.Set{admin.Scheduled, admin.Waiting},
		Field: "Reschedule to", Hint: "30m, or 09:00 UTC", timed: true,
		Whole:  true,
		Effect: "The messages become due at the new time.",
		run: func(a *admin.Admin, value string) bulk {
			return func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error) {
				due, err := time.Parse(time.RFC3339Nano, value)
				if err != nil {
					return admin.Progress{}, err
				}
				return a.Reschedule(ctx, topic, which, delay.Until(due), progress)
			}
		},
	},
	{
		Name: "bury", needs: mayBury, Verb: "Bury", Done: "buried", Sets: []admin.Set{admin.Waiting, admin.InDelivery},
		Field: "Bury because", Hint: "why nobody is to handle them",
		perGroup: true,
		Effect:   "Buried messages are dead-lettered. They are not delivered unless they are requeued.",
		run: func(a *admin.Admin, reason string) bulk {
			return func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error) {
				return a.Bury(ctx, topic, which, reason, progress)
			}
		},
	},
	{
		Name: "discard", needs: mayDiscard, Verb: "Discard", Class: "danger", Done: "discarded", Sets: []admin.Set{admin.Dead},
		perGroup: true, Destructive: true,
		Effect: "Discarded messages are deleted for their group.",
		run:    func(a *admin.Admin, _ string) bulk { return a.Discard },
	},
	{
		Name: "cancel", needs: mayCancel, Verb: "Cancel", Class: "danger", Done: "cancelled", Sets: []admin.Set{admin.Scheduled, admin.Waiting, admin.InDelivery},
		Whole: true, WholeAll: true, Destructive: true,
		Effect: "Cancelled messages are deleted, and no group receives them.",
		run:    func(a *admin.Admin, _ string) bulk { return a.Cancel },
	},
}

// actionsFor returns the actions for messages of the sets that the request may carry out.
func actionsFor(q *request, sets ...admin.Set) []action {
	return slices.DeleteFunc(slices.Clone(actions), func(a action) bool {
		in := func(set admin.Set) bool { return slices.Contains(a.Sets, set) }
		return !slices.ContainsFunc(sets, in) || !q.access.allows(a.needs)
	})
}

func actionNamed(name string) (action, error) {
	for _, a := range actions {
		if a.Name == name {
			return a, nil
		}
	}
	return action{}, &statusError{http.StatusNotFound, "there is no such operation"}
}

// start starts an operation and redirects to its page or, if it is done at once, back to the page with the form.
func (d *Dashboard) start(a action) func(w http.ResponseWriter, q *request) error {
	return func(w http.ResponseWriter, q *request) error {
		o, which, err := d.planned(q, a)
		if err != nil {
			return err
		}
		value, err := valueOf(q, a)
		if err != nil {
			return err
		}
		if marks := q.form["mark"]; a.Destructive && len(marks) > 0 && q.form.Get("sure") == "" {
			return d.show(d.confirmMarked(a, o, marks))(w, q)
		}
		o.confirm = confirmQuery(q, a, value)
		about := watermill.LogFields{"topic": o.Topic, "messages": o.What, "value": value}
		d.audit(q, a.Name, "started", nil, about.Add(watermill.LogFields{"about": o.Total}))
		if err := d.operations.start(o, func(ctx context.Context) error {
			err := d.carryOut(ctx, a, o, which, value)
			p := o.Now().Progress
			d.audit(q, a.Name, outcomeOf(ctx, err), err, about.Add(watermill.LogFields{"done": p.Done, "skipped": p.Skipped}))
			return err
		}); err != nil {
			return err
		}
		d.toOperation(w, q, o)
		return nil
	}
}

// confirmMarked shows the confirmation page before selected messages are deleted.
func (d *Dashboard) confirmMarked(a action, o *operation, marks []string) view {
	return func(_ context.Context, q *request) (page, error) {
		data := confirmData{Action: a, Topic: o.Topic, What: o.What, Count: o.Total, Query: q.URL.RawQuery, Marks: marks, Scope: namedBy(a, marks), Back: "topic?topic=" + url.QueryEscape(o.Topic)}
		if back := q.query.Get("back"); d.isPage(back) {
			data.Back = back
		}
		return page{Name: "confirm", Title: a.Verb, Data: data}, nil
	}
}

// namedBy returns the groups of selected messages, and the first ids.
func namedBy(a action, marks []string) []part {
	groups, ids := map[string]int{}, []string{}
	for _, mark := range marks {
		values, _ := url.ParseQuery(mark) // marked has rejected invalid ones
		groups[values.Get("group")]++
		ids = append(ids, values.Get("id"))
	}
	group, messages := counted(groups), strings.Join(ids[:min(maxNamed, len(ids))], ", ")
	if a.Whole {
		group = "all"
	}
	if more := len(ids) - maxNamed; more > 0 {
		messages += " and " + humanize.Number(more) + " more"
	}
	return []part{{Title: "Group", Value: group}, {Title: "IDs", Value: messages}}
}

// counted formats the number of messages of each group.
func counted(groups map[string]int) string {
	var list []string
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		list = append(list, group+" ("+humanize.Number(groups[group])+")")
	}
	return strings.Join(list, ", ")
}

// valueOf returns the value of the action's field. A resumed operation must keep its value.
func valueOf(q *request, a action) (string, error) {
	field := "value"
	if q.form.Has("value." + a.Name) { // the fields of several actions are in one form
		field += "." + a.Name
	}
	value, before := q.form.Get(field), q.query.Get("value")
	switch {
	case a.Field == "":
		return value, nil
	case value == "":
		return "", badField(field, value, a.Hint)
	case q.query.Get("cursor") != "" && value != before:
		return "", badField(field, value, before+", with which this operation goes on")
	case a.timed: // a relative time would change if the operation is resumed
		due, err := humanize.ParseTime(value, time.Now().UTC(), humanize.Ahead)
		if err != nil {
			return "", badField(field, value, humanize.WantTime)
		}
		return timeText(due), nil
	}
	return value, nil
}

// carryOut carries out an action on each selection.
func (d *Dashboard) carryOut(ctx context.Context, a action, o *operation, which []admin.Selection, value string) error {
	var before admin.Progress
	for _, selection := range which {
		update := func(p admin.Progress) {
			p.Done, p.Skipped = p.Done+before.Done, p.Skipped+before.Skipped
			if p.LastSkip == nil {
				p.LastSkip = before.LastSkip
			}
			o.update(func(now *status) { now.Progress = p })
		}
		progress, err := a.run(d.config.Admin, value)(ctx, o.Topic, selection, update)
		update(progress)
		if err != nil {
			return err
		}
		before = o.Now().Progress
	}
	return nil
}

// planned returns the operation of a form, and the messages to change.
func (d *Dashboard) planned(q *request, a action) (*operation, []admin.Selection, error) {
	o := &operation{Action: a.Name, verb: a.Verb, Done: a.Done, Topic: q.topic(), Actor: q.actor, needs: a.needs, deletesMessage: a.Destructive}
	if marks := q.form["mark"]; len(marks) > 0 {
		o.Total, o.What = len(marks), humanize.Count(len(marks), "selected message", "selected messages")
		if a.Whole {
			o.What += ", in all groups"
		}
		which, err := marked(a, marks)
		return o, which, err
	}
	f, err := readFilter(q)
	if err != nil {
		return nil, nil, err
	}
	shown, typed := q.form.Get("count"), q.form.Get("number")
	if shown == "" {
		return nil, nil, &statusError{http.StatusBadRequest, "no message is selected"}
	}
	if a.Destructive && shown != typed {
		return nil, nil, badField("number", typed, shown+" to confirm")
	}
	if o.Total, err = d.recount(q, f, shown); err != nil {
		return nil, nil, err
	}
	o.What = a.what(f)
	return o, []admin.Selection{admin.Matching(f.Query)}, nil
}

// what describes the messages that match a filter.
func (a action) what(f filter) string {
	words := strings.Replace(f.words(), "scheduled", "scheduled and due", 1)
	if a.WholeAll && f.Group != "" {
		words += ", in all groups, not only " + humanize.Clean(f.Group)
	}
	return words
}

// matching counts the messages of an operation. A resumed operation has at most as many messages as were left when it stopped.
func (d *Dashboard) matching(ctx context.Context, q *request, f filter) (int, error) {
	n, err := d.config.Admin.Count(ctx, q.topic(), f.Query)
	if left, wrong := strconv.Atoi(q.query.Get("left")); wrong == nil {
		n = min(n, left)
	}
	return n, err
}

// recount returns an error if far more messages match now than the user has confirmed.
func (d *Dashboard) recount(q *request, f filter, shown string) (int, error) {
	n, err := d.matching(q.Context(), q, f)
	if err != nil {
		return 0, err
	}
	if confirmed, err := strconv.Atoi(shown); err != nil || n > confirmed+confirmed/10+10 {
		return 0, &statusError{http.StatusConflict, "meanwhile " + humanize.Number(n) + " messages match: go back, and count again"}
	}
	return n, nil
}

// mark encodes a message of a group for a form.
func mark(id, group string) string { return url.Values{"id": {id}, "group": {group}}.Encode() }

// marked returns the selected messages, by group: the same message may be dead in one group and not in another. If the
// action is for all groups, each message is returned once.
func marked(a action, marks []string) ([]admin.Selection, error) {
	ids := map[string][]string{}
	for _, text := range marks {
		values, err := url.ParseQuery(text)
		if err != nil || values.Get("id") == "" {
			return nil, badField("mark", text, "an id and a group")
		}
		id, group := values.Get("id"), values.Get("group")
		if a.Whole {
			group = ""
		}
		if !slices.Contains(ids[group], id) {
			ids[group] = append(ids[group], id)
		}
	}
	var which []admin.Selection
	for _, group := range slices.Sorted(maps.Keys(ids)) {
		which = append(which, admin.ByID(ids[group]...).OfGroup(group))
	}
	return which, nil
}

// confirmQuery returns the query of the page that confirms resuming the operation; nil for selected messages.
func confirmQuery(q *request, a action, value string) url.Values {
	if len(q.form["mark"]) > 0 {
		return nil
	}
	values := maps.Clone(q.query)
	values.Set("action", a.Name)
	if value != "" {
		values.Set("value", value)
	}
	return values
}

// soon is how long a form waits for an operation on all matching messages before it shows the progress. For selected
// messages, which are few, it waits maxWait.
const soon = time.Second

func (d *Dashboard) toOperation(w http.ResponseWriter, q *request, o *operation) {
	patience := soon
	if o.confirm == nil {
		patience = maxWait
	}
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	select {
	case <-o.ended:
	case <-ctx.Done():
	}
	d.cache.clear()
	to := "operation?" + o.Query()
	back := q.query.Get("back")
	gone := o.deletesMessage && strings.HasPrefix(back, "message?")
	if o.State() == "done" && d.isPage(back) && !gone {
		to = back + "&did=" + url.QueryEscape(o.ID)
	}
	redirect(w, to)
}

// isPage reports whether a URL is that of a page of the dashboard, with a query. This prevents redirects to other sites.
func (d *Dashboard) isPage(text string) bool {
	to, err := url.Parse(text)
	if err != nil || to.Scheme != "" || to.Host != "" || to.Opaque != "" || to.User != nil || to.RawQuery == "" {
		return false
	}
	return d.routes[http.MethodGet+" "+to.Path].page != nil
}

// redirect redirects to a relative URL. http.Redirect would make it absolute, without the prefix that a proxy has removed.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
