package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// periodic returns the commands for schedules.
func (a *app) periodic() *cobra.Command {
	return parentCommand("periodic", "List, pause, trigger, remove or run schedules",
		a.periodicLs(), a.periodicShow(), a.periodicPause(), a.periodicResume(), a.periodicTrigger(), a.periodicRm(), a.periodicRun())
}

// schedules returns a Scheduler for the schedules of the prefix.
func (a *app) schedules(change func(*periodic.Config)) (*periodic.Scheduler, error) {
	config := periodic.Config{Client: a.client, Prefix: a.prefix}
	if a.body == "json" {
		config.Marshaler = redisdelay.JSONMarshaler{}
	}
	if change != nil {
		change(&config)
	}
	return periodic.New(config, outageLog{app: a, name: "periodic"})
}

// bodyFlag adds the flag for the encoding of the messages of schedules.
func (a *app) bodyFlag(cmd *cobra.Command) *cobra.Command {
	a.body = "messagepack"
	cmd.Flags().Var(choice(&a.body, a.body, "json"), "body", "the encoding that the consumers of the topics expect")
	return cmd
}

// scheduleCommand returns a command for one or more schedules.
func (a *app) scheduleCommand(use, short string, check func(cmd *cobra.Command, args []string) error,
	run func(ctx context.Context, p *periodic.Scheduler, args []string) error,
) *cobra.Command {
	return a.command(use, short, check, func(ctx context.Context, args []string) error {
		p, err := a.schedules(nil)
		if err != nil {
			return err
		}
		return run(ctx, p, args)
	})
}

func (a *app) periodicLs() *cobra.Command {
	return a.scheduleCommand("ls", "List schedules: their times, the ticks stored ahead, and whether they are behind", nil,
		func(ctx context.Context, p *periodic.Scheduler, _ []string) error {
			list, err := p.List(ctx, 1)
			if err != nil {
				return err
			}
			return a.showSchedules(list)
		})
}

func (a *app) showSchedules(list []periodic.Status) error {
	g := a.newGrid("ID", "TOPIC", "WHEN", "NEXT", "#IN", "#AHEAD", "BEHIND", "PAUSED", "+OWNER", "+CRON", "PROBLEM")
	all, now := make([]scheduleJSON, len(list)), a.now()
	for i, s := range list {
		all[i] = scheduleJSON{s, catchUp(s.CatchUp)}
		next, in := "", ""
		if len(s.Next) > 0 {
			next, in = nominal(s.Next[0]), humanize.Duration(s.Next[0].Sub(now))
		}
		paused := ""
		if s.Pause != nil {
			paused = a.cut("by "+s.Pause.By+reasonOf(*s.Pause), 40)
		}
		g.add(a.cut(s.ID, 40), s.Topic, a.cut(s.Description, 50), next, in, count(s.Stored), alarm(behindText(s)), paused,
			s.Owner, s.Cron, alarm(a.cut(s.Problem, 60)))
	}
	g.spare = []string{"AHEAD", "TOPIC", "NEXT", "WHEN"}
	return printList(a, all, g, "there is no schedule")
}

// behindText formats how long a schedule is behind; "" up to periodic.BehindAfter.
func behindText(s periodic.Status) string {
	if s.Behind <= periodic.BehindAfter {
		return ""
	}
	return humanize.Duration(s.Behind)
}

// alarm formats a text that should be empty.
func alarm(text string) styled {
	if text == "" {
		return ""
	}
	return paint(badStyle, text)
}

func reasonOf(p redisdelay.Pause) string {
	if p.Reason == "" {
		return ""
	}
	return ": " + p.Reason
}

// nominal formats a nominal time in its own zone.
func nominal(t time.Time) string {
	layout := "2006-01-02 15:04 MST"
	if t.Truncate(time.Minute) != t {
		layout = "2006-01-02 15:04:05.999 MST"
	}
	return t.Format(layout)
}

func (a *app) periodicShow() *cobra.Command {
	return a.scheduleCommand("show ID", "Show a schedule: its times, its message and its pause", nil,
		func(ctx context.Context, p *periodic.Scheduler, args []string) error {
			s, err := p.Get(ctx, args[0], 3)
			if err != nil {
				return err
			}
			if a.json() {
				return a.object(scheduleJSON{s, catchUp(s.CatchUp)})
			}
			return a.showSchedule(s)
		})
}

func (a *app) showSchedule(s periodic.Status) error {
	now := a.now()
	f := &fields{}
	f.add("id", paint(headerStyle, s.ID))
	f.add("topic", s.Topic)
	f.add("when", s.Description)
	f.add("cron", s.Cron)
	f.add("zone", s.Zone)
	if s.Offset > 0 {
		f.add("offset", humanize.Duration(s.Offset))
	}
	if s.Jitter > 0 {
		f.add("jitter below", humanize.Duration(s.Jitter))
	}
	f.add("start", humanize.Full(s.Start, now))
	f.add("end", humanize.Full(s.End, now))
	if s.Pause != nil {
		f.add("paused", paint(warnStyle, fmt.Sprintf("by %s%s", s.Pause.By, reasonOf(*s.Pause))))
		f.add("paused since", humanize.Full(s.Pause.Since, now))
	}
	for _, at := range s.Next {
		f.add("next", nominal(at)+" ("+humanize.Relative(at, now)+")")
	}
	f.add("stored ahead", fmt.Sprintf("%s; at least %d, and %s", humanize.Count(s.Stored, "tick", "ticks"), s.MinTicksAhead, humanize.Duration(s.StoreAhead)))
	f.add("behind", alarm(behindText(s)))
	f.add("problem", alarm(s.Problem))
	f.add("catch up", catchUp(s.CatchUp))
	f.add("overlap", string(s.Overlap))
	f.add("owner", s.Owner)
	if s.Version > 0 {
		f.add("version", s.Version)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Metadata)) {
		f.add("metadata", a.cut(k+"="+s.Metadata[k], maxPairLength))
	}
	if err := a.printFields(f); err != nil {
		return err
	}
	return a.showPayload(s.Payload)
}

// catchUp is the value of --catch-up: one, none, or a duration.
func catchUp(period time.Duration) string {
	switch period {
	case periodic.CatchUpOne:
		return "one"
	case periodic.CatchUpNone:
		return "none"
	}
	return period.String()
}

func (a *app) periodicPause() *cobra.Command {
	var why redisdelay.Pause
	cmd := a.scheduleCommand("pause ID", "Stop the ticks of a schedule, including those stored ahead", nil,
		func(ctx context.Context, p *periodic.Scheduler, args []string) error {
			why.By = cmp.Or(why.By, whoami())
			if err := p.Pause(ctx, args[0], why); err != nil {
				return err
			}
			return a.scheduleDone("pause", args[0], "paused schedule %q until resumed", args[0])
		})
	cmd.Flags().Var(text(&why.Reason, "TEXT"), "reason", "the reason that others see")
	cmd.Flags().Var(text(&why.By, "NAME"), "by", "the name that others see (default user@host)")
	cmd.Example = "redisdelay periodic pause report-eu --reason 'figures are wrong'"
	return cmd
}

func (a *app) periodicResume() *cobra.Command {
	cmd := a.scheduleCommand("resume ID", "End a pause of a schedule; ticks count from now", nil,
		func(ctx context.Context, p *periodic.Scheduler, args []string) error {
			if err := p.Resume(ctx, args[0]); err != nil {
				return err
			}
			return a.scheduleDone("resume", args[0], "resumed schedule %q", args[0])
		})
	cmd.Long = "The ticks of the pause are skipped."
	return a.bodyFlag(cmd)
}

func (a *app) periodicTrigger() *cobra.Command {
	cmd := a.scheduleCommand("trigger ID", "Publish a message of a schedule now, even if it is paused", nil,
		func(ctx context.Context, p *periodic.Scheduler, args []string) error {
			if err := p.Trigger(ctx, args[0]); err != nil {
				return err
			}
			return a.scheduleDone("trigger", args[0], "published a message of schedule %q", args[0])
		})
	return a.bodyFlag(cmd)
}

func (a *app) periodicRm() *cobra.Command {
	yes := false
	cmd := a.scheduleCommand("rm ID", "Remove a schedule and its ticks stored ahead",
		func(*cobra.Command, []string) error {
			if !yes && !a.terminal.in {
				return usagef("--yes is missing: there is no terminal to ask on, want --yes")
			}
			return nil
		},
		func(ctx context.Context, p *periodic.Scheduler, args []string) error {
			s, err := p.Get(ctx, args[0], 0)
			if err != nil {
				return err
			}
			if !yes {
				question := fmt.Sprintf("Remove schedule %q (%s)? %s stored ahead.", s.ID, s.Description, humanize.Count(s.Stored, "tick is", "ticks are"))
				if err := a.confirm(ctx, question); err != nil {
					return err
				}
			}
			if err := p.Remove(ctx, args[0]); err != nil {
				return err
			}
			back := ""
			if s.Owner != "" {
				back = fmt.Sprintf("; it exists again when %q declares it again", s.Owner)
			}
			return a.scheduleDone("rm", args[0], "removed schedule %q%s", args[0], back)
		})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) periodicRun() *cobra.Command {
	cmd := a.command("run", "Store the ticks of all schedules ahead, until a signal", nil, func(ctx context.Context, _ []string) error {
		done := scheduleOperationJSON{Operation: "run"} // changed by the observer, which Run calls
		p, err := a.schedules(func(c *periodic.Config) {
			c.Observer = observe.Observer{Ticked: func(e observe.Ticked) {
				done.Stored, done.Missed = done.Stored+e.Stored, done.Missed+e.Missed
			}}
		})
		if err != nil {
			return err
		}
		a.say("redisdelay periodic run: storing the ticks of schedules ahead, until a signal\n")
		if err := p.Run(ctx); err != nil {
			return err
		}
		text := "stored " + humanize.Count(done.Stored, "tick", "ticks")
		if done.Missed > 0 {
			text += fmt.Sprintf("; %s, and not made up for", humanize.Count(done.Missed, "was missed", "were missed"))
		}
		return a.reply(done, "%s", text)
	})
	cmd.Long = "Any number of processes may do so, next to your services. If these have a JSONMarshaler, give --body json: consumers\n" +
		"without a JSONMarshaler cannot read JSON. Do not run this if you have your own Marshaler."
	return a.bodyFlag(cmd)
}

// scheduleDone reports the result of an operation on a schedule.
func (a *app) scheduleDone(name, id, format string, args ...any) error {
	return a.reply(scheduleOperationJSON{Schedule: id, Operation: name}, format, args...)
}

// outageLog writes the log of a Scheduler or an Inbox to standard error.
type outageLog struct {
	watermill.NopLogger
	app  *app
	name string
}

var _ watermill.LoggerAdapter = outageLog{}

func (l outageLog) Error(msg string, err error, fields watermill.LogFields) {
	where := ""
	if id, has := fields["schedule"]; has {
		where = fmt.Sprintf(" (%v)", id)
	}
	l.app.say("redisdelay %s: %s%s: %s\n", l.name, msg, where, plain(err))
}

func (l outageLog) Info(msg string, _ watermill.LogFields) {
	l.app.say("redisdelay %s: %s\n", l.name, msg)
}

// With returns l. The fields identify the process, so it ignores them.
func (l outageLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }
