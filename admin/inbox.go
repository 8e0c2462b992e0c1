package admin

import (
	"context"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/intake"
)

const (
	// inboxLate is how long an entry may wait in the inbox before Examine reports it.
	inboxLate = time.Minute

	// inboxSearched is how many entries InboxSince reads, unless they are large.
	inboxSearched = 1000
)

// Inbox is the state of the inbox of package inbox.
type Inbox struct {
	Waiting  int64         // entries that are not stored yet
	Oldest   time.Duration // how long the first of them has waited; 0 for none, or if its writer chose an id that is not a time
	Rejected int64         // rejected entries that are kept
}

// Inbox returns the state of the inbox, in one call to Redis.
func (a *Admin) Inbox(ctx context.Context) (Inbox, error) {
	g, err := intake.New(a.store.Client).Glance(ctx)
	if err != nil {
		return Inbox{}, wrap(err, "read the inbox")
	}
	return Inbox{Waiting: g.Length, Oldest: g.Oldest(), Rejected: g.Rejected}, nil
}

// InboxSince returns since when a message waits in the inbox: the first entry that publishes to the topic with
// Ref.Key, or with Ref.ID as its UUID. It reads the first 1,000 entries, up to about 8 MiB. The result is the zero time
// if the message is not among them, and the current time if its writer chose an entry id that is not a time.
func (a *Admin) InboxSince(ctx context.Context, topic string, ref Ref) (since time.Time, err error) {
	if topic == "" {
		return time.Time{}, wrap(redisdelay.ErrEmptyTopic, "read the inbox")
	}
	entries, err := intake.New(a.store.Client).Waiting(ctx, inboxSearched)
	if err != nil {
		return time.Time{}, wrap(err, "read the inbox")
	}
	for _, e := range entries {
		fields := map[string]string{"uuid": "inbox-" + e.ID, "op": "publish"} // the defaults
		for _, f := range e.Fields {
			fields[f[0]] = f[1]
		}
		if fields["topic"] == topic && fields["op"] == "publish" &&
			(ref.Key != "" && fields["key"] == ref.Key || ref.ID != "" && fields["uuid"] == ref.ID) {
			now := time.Now()
			if at, known := e.Time(now); known {
				return at, nil
			}
			return now, nil
		}
	}
	return time.Time{}, nil
}

// inbox examines whether a process stores the entries of the inbox.
func (d diagnosis) inbox(ctx context.Context) error {
	i, err := d.admin.Inbox(ctx)
	if err != nil {
		return err
	}
	if i.Oldest > inboxLate {
		d.report(SeverityWarning, CheckInbox, "", "%s in the inbox, the first for %s: no process reads the inbox, or it is too slow; see redisdelay inbox run",
			humanize.Count(int(i.Waiting), "entry waits", "entries wait"), humanize.Duration(i.Oldest))
	}
	if i.Rejected > 0 {
		d.report(SeverityInfo, CheckInbox, "", "%s of the inbox could not be stored; see redisdelay inbox rejected",
			humanize.Count(int(i.Rejected), "entry", "entries"))
	}
	return nil
}
