package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/connect"
	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/sortedset"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// setImport is an import from sorted sets of other libraries or applications.
type setImport struct {
	app *app

	// from flags
	zset, hash, unit string
	from, queue      string
	source           string // URL of Redis; "" for the Redis of the topic
	after            time.Time
	keyed, remove    bool
	dryRun           bool
	metadata         pairs

	total       int // members of the sets
	bar         *bar
	done        importJSON
	lastProblem error  // why the last unusable member cannot be imported
	gone        string // the last member that is counted as Gone
	some        []sortedset.Job
}

// importJSON is the result of an import from sorted sets, or of its dry run.
type importJSON struct {
	operationJSON
	FirstDue time.Time // earliest due time of an imported member
	LastDue  time.Time
	Earlier  int // members that were not imported because they are due before --due-after
	Unusable int // members that cannot become messages
	KeyInUse int // skipped members whose key another message holds
	Gone     int // members that remain in the set because their stored message is gone before it was due
	Removed  int // members removed from the set
}

const importSample = 5 // jobs that a dry run shows

const aboutImport = `FILE has the lines of an export, or lines with only a payload and a due time.

With --zset, the members of a sorted set become messages that are due at their scores. The payload is the member, or
with --hash the value of the field of that name. Each member is stored once, even if the command is killed and run again
within a day, and even if its message is done. The id is made from the key of the set, the member and the score, so two
sets with the same key on two servers count as one.

The set is only read, unless you give --remove. Then stored members are removed, unless their score has changed. A hash is
not changed. If a job was stored before, and its message was cancelled or handled before its due time, the job stays in
the set and the command fails.

While old workers still take due jobs, --due-after 10m --remove takes only jobs that they will not touch for ten minutes,
counted from the start of the command. Give more time than the command takes. Otherwise both may handle a job that becomes
due before it is stored.

With --from, the jobs that wait in a queue of another library become messages. The queue is not changed. If --keyed makes a
job's key one that another message holds, the job is not imported, and the command fails.`

// flags adds the flags for sorted sets to the command import.
func (s *setImport) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(text(&s.zset, "KEY"), "zset", "import the members of this sorted set, in place of a FILE")
	flags.Var(choice(&s.unit, string(sortedset.Seconds), string(sortedset.Milliseconds)), "score", "the unit of the scores of --zset, which count from 1970")
	flags.Var(text(&s.hash, "KEY"), "hash", "a hash with the payloads; its fields are the members of --zset")
	flags.Var(choice(&s.from, "asynq", "bullmq", "delayqueue"), "from", "import the jobs that wait in a queue of asynq (scheduled and retry), BullMQ (delayed) or delayqueue (pending)")
	flags.Var(text(&s.queue, "NAME"), "queue", "of --from; for BullMQ, PREFIX:NAME if the prefix of its keys is not bull; for delayqueue, {NAME} with hash tags")
	flags.Var(text(&s.source, "URL"), "source", "the Redis that has the set (default: that of the topic)")
	flags.Var(s.app.moment(&s.after, humanize.Ahead), "due-after", "only jobs due at this time or later: 10m is in ten minutes")
	flags.BoolVar(&s.keyed, "keyed", false, "the member is the message's key, for cancel and reschedule")
	flags.Var(s.metadata, "meta", "metadata of each message; may be repeated")
	flags.BoolVar(&s.remove, "remove", false, "remove stored jobs from --zset")
	flags.BoolVar(&s.dryRun, "dry-run", false, "only count and show what would be imported")
}

// asked reports whether a flag asks for an import from a sorted set.
func (s *setImport) asked() bool { return s.zset != "" || s.from != "" }

func (s *setImport) check(cmd *cobra.Command, args []string) error {
	if err := exclusive(cmd, "zset", "from"); err != nil {
		return err
	}
	needed := map[string][]string{"zset": {"hash", "score", "remove"}, "from": {"queue"}}
	for _, source := range []string{"zset", "from"} {
		for _, flag := range needed[source] {
			if cmd.Flags().Changed(flag) && !cmd.Flags().Changed(source) {
				return usagef("--%s cannot be used here, want --%s", flag, source)
			}
		}
	}
	for _, flag := range []string{"source", "due-after", "keyed", "meta", "dry-run"} {
		if cmd.Flags().Changed(flag) && !s.asked() {
			return usagef("--%s cannot be used here, want --zset or --from", flag)
		}
	}
	switch {
	case s.asked() && len(args) > 1:
		return usagef("FILE cannot be given with --zset or --from: want one of them")
	case s.zset != "":
		return needs(cmd, "score")
	case s.from != "":
		return needs(cmd, "queue")
	}
	return nil
}

func (s *setImport) run(ctx context.Context, args []string) error {
	sets, finish, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer finish()
	for _, set := range sets {
		n, err := set.Count(ctx)
		if err != nil {
			return err
		}
		s.total += n
	}
	verb := "imported"
	if s.dryRun {
		verb = "read"
	}
	s.bar = s.app.newBar(verb, s.total)
	for _, set := range sets {
		if err = s.takeAll(ctx, args[0], set); err != nil {
			break
		}
	}
	s.bar.clear()
	return s.report(ctx, args[0], err)
}

// open returns the sets to import.
func (s *setImport) open(ctx context.Context) ([]sortedset.Set, func(), error) {
	client, finish := s.app.client, func() {}
	if s.source != "" {
		target := s.app.target
		target.URL, target.Sentinel, target.Cluster = s.source, "", false
		if !target.Secure() { // the files of the flags are for the topic's server
			target.CA, target.Cert, target.Key = "", "", ""
		}
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		opened, err := connect.Open(ctx, target)
		if err != nil {
			var wrong *connect.TargetError
			if errors.As(err, &wrong) {
				return nil, nil, usagef("--source: %s", strings.TrimPrefix(wrong.Error(), "--redis "))
			}
			return nil, nil, fmt.Errorf("--source: %w", err)
		}
		client, finish = opened, func() { _ = opened.Close() }
	}
	switch s.from {
	case "asynq":
		return sortedset.Asynq(client, s.queue), finish, nil
	case "bullmq":
		return []sortedset.Set{sortedset.BullMQ(client, s.queue)}, finish, nil
	case "delayqueue":
		return []sortedset.Set{sortedset.DelayQueue(client, s.queue)}, finish, nil
	}
	return []sortedset.Set{sortedset.ByHand(client, s.zset, s.hash, sortedset.Unit(s.unit))}, finish, nil
}

// takeAll imports a set or, in a dry run, counts its members.
func (s *setImport) takeAll(ctx context.Context, topic string, set sortedset.Set) error {
	for page, err := range set.Pages(ctx) {
		if err != nil {
			return err
		}
		jobs := s.choose(page)
		if s.dryRun {
			s.done.Done += len(jobs)
			s.some = append(s.some, jobs[:min(len(jobs), importSample-len(s.some))]...)
		} else if err := s.store(ctx, topic, set, jobs); err != nil {
			return err
		}
		s.bar.update(admin.Progress{Done: s.done.Done, Skipped: s.done.Skipped + s.done.Earlier + s.done.Unusable})
	}
	return nil
}

// choose returns the jobs of a page that are to be imported, and counts the others.
func (s *setImport) choose(page []sortedset.Job) []sortedset.Job {
	s.options().Check(page)
	var jobs []sortedset.Job
	for _, job := range page {
		due := time.UnixMilli(job.Due)
		switch {
		case job.Problem != nil:
			s.done.Unusable++
			s.lastProblem = fmt.Errorf("member %q: %w", humanize.Cut(job.Member, 60), job.Problem)
			continue
		case due.Before(s.after):
			s.done.Earlier++
			continue
		}
		if s.done.FirstDue.IsZero() || due.Before(s.done.FirstDue) {
			s.done.FirstDue = due
		}
		if due.After(s.done.LastDue) {
			s.done.LastDue = due
		}
		jobs = append(jobs, job)
	}
	return jobs
}

func (s *setImport) options() sortedset.Options {
	return sortedset.Options{Keyed: s.keyed, Metadata: s.metadata}
}

// store imports jobs and, with --remove, removes them from the set.
func (s *setImport) store(ctx context.Context, topic string, set sortedset.Set, jobs []sortedset.Job) error {
	progress, err := s.put(ctx, topic, set, jobs)
	s.done.Done += progress.Done
	s.done.Skipped += progress.Skipped
	if progress.LastSkip != nil {
		s.done.Reason = plain(progress.LastSkip)
	}
	if err == nil && progress.Skipped > 0 && (s.keyed || s.remove) {
		jobs, err = s.stored(ctx, topic, set, jobs)
	}
	if err != nil || !s.remove {
		return err
	}
	removed, err := set.Remove(ctx, jobs)
	s.done.Removed += removed
	return err
}

func (s *setImport) put(ctx context.Context, topic string, set sortedset.Set, jobs []sortedset.Job) (admin.Progress, error) {
	lines, err := set.Lines(jobs, s.options())
	if err != nil {
		return admin.Progress{}, err
	}
	return s.app.admin.Import(ctx, topic, bytes.NewReader(lines), nil)
}

// stored returns the jobs whose messages are stored or done, and counts the others.
func (s *setImport) stored(ctx context.Context, topic string, set sortedset.Set, jobs []sortedset.Job) ([]sortedset.Job, error) {
	var stored []sortedset.Job
	for _, job := range jobs {
		is, err := s.isStored(ctx, topic, set, job)
		if err != nil {
			return nil, err
		}
		if is {
			stored = append(stored, job)
		}
	}
	return stored, nil
}

// isStored reports whether the message of a job is stored or done. With keys, it imports the job again, because only an
// import of a single job shows that its key is in use.
func (s *setImport) isStored(ctx context.Context, topic string, set sortedset.Set, job sortedset.Job) (bool, error) {
	if s.keyed {
		progress, err := s.put(ctx, topic, set, []sortedset.Job{job})
		if err != nil {
			return false, err
		}
		s.done.Done += progress.Done // its key has become free
		s.done.Skipped -= progress.Done
		if errors.Is(progress.LastSkip, admin.ErrKeyInUse) {
			s.done.KeyInUse++
			return false, nil
		}
	}
	if !s.remove || !time.UnixMilli(job.Due).After(s.app.now()) {
		return true, nil
	}
	exists, err := s.exists(ctx, topic, set, job)
	if err == nil && !exists {
		s.done.Gone++
		s.gone = humanize.Cut(job.Member, 60)
	}
	return exists, err
}

// exists reports whether the message of a job is in the topic. It may have been cancelled after it was stored.
func (s *setImport) exists(ctx context.Context, topic string, set sortedset.Set, job sortedset.Job) (bool, error) {
	for _, id := range set.IDs(job, s.options()) {
		_, err := s.app.admin.Message(ctx, topic, admin.Ref{ID: id})
		if !errors.Is(err, admin.ErrMessageNotFound) {
			return err == nil, err
		}
	}
	return false, nil
}

// report reports the result. Members that were not imported are an error, even if all others were.
func (s *setImport) report(ctx context.Context, topic string, err error) error {
	s.done.Topic, s.done.Operation, s.done.DryRun = topic, "import", s.dryRun
	s.done.Matching, s.done.Complete = &s.total, err == nil && !s.dryRun
	failed := outcome(ctx, err, admin.Progress{}, false)
	if failed == nil {
		failed = s.missing()
	}
	if s.dryRun && err == nil && !s.app.json() {
		return errors.Join(s.preview(topic), failed)
	}
	return errors.Join(s.app.reply(s.done, "%s", s.summary(ctx)), failed)
}

// missing returns an error about members that are neither in the topic nor handled. With --zset, a key in use is no error,
// because the new version of the application has then published the message.
func (s *setImport) missing() error {
	var texts []string
	if s.done.Unusable > 0 {
		texts = append(texts, fmt.Sprintf("%s cannot be imported, such as %v",
			humanize.Count(s.done.Unusable, "member", "members"), s.lastProblem))
	}
	if s.done.KeyInUse > 0 && s.from != "" {
		texts = append(texts, humanize.Count(s.done.KeyInUse, "member was not imported, since its key is in use",
			"members were not imported, since their keys are in use"))
	}
	if s.done.Gone > 0 {
		texts = append(texts, fmt.Sprintf("%s no longer there: left in the set, such as %q",
			humanize.Count(s.done.Gone, "member was stored before, and is", "members were stored before, and are"), s.gone))
	}
	if texts == nil {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

func (s *setImport) summary(ctx context.Context) string {
	text := "imported " + humanize.Count(s.done.Done, "message", "messages") + s.done.skips()
	for _, part := range []struct {
		count      int
		before, of string
	}{
		{s.done.KeyInUse, "", " with a key in use"}, // the last reason may be another one
		{s.done.Earlier, "left ", " that are due earlier"},
		{s.done.Removed, "removed ", " from the set"},
	} {
		if part.count > 0 {
			text += "; " + part.before + humanize.Number(part.count) + part.of
		}
	}
	if ctx.Err() != nil {
		text += "; import it again to finish"
	}
	return text
}

// preview shows the result of a dry run.
func (s *setImport) preview(topic string) error {
	a, now := s.app, s.app.now()
	text := "no member"
	if s.done.Done > 0 {
		text = fmt.Sprintf("%s, due from %s to %s", humanize.Count(s.done.Done, "member", "members"),
			humanize.Full(s.done.FirstDue, now), humanize.Full(s.done.LastDue, now))
	}
	if s.done.Earlier > 0 {
		text += fmt.Sprintf(", without %s due earlier", humanize.Number(s.done.Earlier))
	}
	if err := a.printf("%s, would be imported to topic %q\n", text, topic); err != nil {
		return err
	}
	if len(s.some) > 0 {
		g := a.newGrid("MEMBER", "DUE", "#IN", "PAYLOAD")
		for _, job := range s.some {
			due := time.UnixMilli(job.Due)
			g.add(a.cut(job.Member, 40), humanize.Absolute(due, now), humanize.Duration(due.Sub(now)), a.cut(string(job.Payload), 60))
		}
		if err := errors.Join(a.printf("\n"), a.print(g), a.printf("\n")); err != nil {
			return err
		}
	}
	return a.printf("nothing is done: this is a dry run; what was imported before is counted, too\n")
}
