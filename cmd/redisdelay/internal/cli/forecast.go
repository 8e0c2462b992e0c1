package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

const forecastLong = `It counts what falls due by ranges, so it takes no longer for a million messages. Of a topic with one group, or
with --group, it also counts what waits for the group, and its retries.

When all is handled is an estimate: the rate stays, nothing else is published, and messages fall due evenly within each line.
Without --rate, it looks twice at what is due: what was published meanwhile without a delay makes that too low,
and consumers that have nothing left to do could handle more.
With --per-worker, it says how many workers handle all that is due by then --within a time.`

// forecast is what the command is asked for.
type forecast struct {
	query             admin.ForecastQuery
	rate, perWorker   redisdelay.Rate
	measure, within   time.Duration
	at                time.Time
	measured, allCame bool      // how rate came about: by two looks, at the second of which nothing waited
	began             time.Time // by this host's clock
}

// reach looks as far ahead as the workers need.
func (f *forecast) reach() {
	if f.perWorker.Messages > 0 {
		end := max(f.at.Sub(f.began), 0) + f.measure + f.within
		f.query.Span = max(f.query.Span, (end + time.Hour).Truncate(time.Hour))
	}
}

func (a *app) forecast() *cobra.Command {
	f := forecast{query: admin.ForecastQuery{Span: 24 * time.Hour, Buckets: 24}, measure: 3 * time.Second, within: 10 * time.Minute}
	var cmd *cobra.Command
	cmd = a.command("forecast [TOPIC]", "Show what falls due, when the backlog is gone, and how many workers that takes", checkForecast,
		func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return a.forecastAll(ctx, f.query)
			}
			if f.began = a.now(); !cmd.Flags().Changed("next") {
				f.reach()
			}
			return a.forecastOne(ctx, args[0], f)
		})
	cmd.Flags().Var(duration(&f.query.Span, time.Second), "next", "how far to look ahead; with --per-worker, as far as that takes")
	cmd.Flags().Var(number(&f.query.Buckets, 1, admin.MaxBuckets), "buckets", "into how many parts to cut that")
	a.groupFlag(cmd, &f.query.Group, "with what waits for this group")
	cmd.Flags().Var(rate(&f.rate), "rate", "how many messages consumers handle in a time: 100/s, 30/m or 10/5s (default: measured)")
	cmd.Flags().Var(duration(&f.measure, time.Second), "measure", "for how long to measure that")
	cmd.Flags().Var(rate(&f.perWorker), "per-worker", "how many messages one worker handles in a time, to say how many are needed")
	cmd.Flags().Var(duration(&f.within, time.Second), "within", "the time in which the workers handle all that is due by then")
	cmd.Flags().Var(a.moment(&f.at, humanize.Ahead), "at", "when the workers begin (default: now)")
	cmd.Long = forecastLong
	cmd.Example = "redisdelay forecast\nredisdelay forecast orders --next 1h --buckets 60\n" +
		"redisdelay forecast orders --rate 200/s --per-worker 20/s --at 09:00 --within 5m"
	return cmd
}

func checkForecast(cmd *cobra.Command, args []string) error {
	for _, flag := range []string{"group", "rate", "measure", "per-worker", "within", "at"} {
		if len(args) == 0 && cmd.Flags().Changed(flag) {
			return usagef("--%s is for one topic: want %s", flag, "redisdelay forecast TOPIC")
		}
	}
	for _, flag := range []string{"within", "at"} {
		if cmd.Flags().Changed(flag) && !cmd.Flags().Changed("per-worker") {
			return usagef("--%s needs --per-worker: want --per-worker N/s", flag)
		}
	}
	return apart(cmd, "rate", "measure")
}

// forecastJSON is what falls due in a topic.
type forecastJSON struct {
	Topic      string        `json:"topic"`
	Group      string        `json:"group,omitempty"`
	At         stamp         `json:"at"`
	Waiting    int           `json:"waiting"`
	InDelivery int           `json:"inDelivery"`
	Due        int           `json:"due"` // in all buckets
	Later      int           `json:"later"`
	Buckets    []bucketJSON  `json:"buckets"`
	Estimate   *estimateJSON `json:"estimate,omitempty"`
	Workers    *int          `json:"workers,omitempty"`
}

type bucketJSON struct {
	After    stamp `json:"after"`
	Until    stamp `json:"until"`
	Messages int   `json:"messages"`
	Retries  int   `json:"retries,omitempty"`
}

type estimateJSON struct {
	RatePerSecond float64 `json:"ratePerSecond"`
	Measured      bool    `json:"measured,omitempty"`
	GoneAt        stamp   `json:"goneAt,omitzero"`
	Peak          int     `json:"peak"`
	PeakAt        stamp   `json:"peakAt"`
	Left          int     `json:"left"`
}

func inForecast(f admin.Forecast) forecastJSON {
	o := forecastJSON{
		Topic: f.Topic, Group: f.Group, At: stamp{f.At}, Waiting: f.DueNow, InDelivery: f.InDelivery, Due: f.Upcoming(), Later: f.Later,
	}
	for _, b := range f.Buckets {
		o.Buckets = append(o.Buckets, bucketJSON{stamp{b.After}, stamp{b.Until}, b.Messages, b.Retries})
	}
	return o
}

// forecastAll shows a line for each topic.
func (a *app) forecastAll(ctx context.Context, q admin.ForecastQuery) error {
	topics, err := a.admin.Topics(ctx)
	if err != nil {
		return err
	}
	g := a.newGrid("TOPIC", "#WAITING", "#IN "+strings.ToUpper(humanize.Duration(q.Span)), "#LATER", "CHART")
	var failed []error
	for _, t := range topics {
		f, err := a.admin.Forecast(ctx, t.Name, q)
		switch {
		case errors.Is(err, admin.ErrTopicNotFound): // deleted meanwhile
			continue
		case err != nil:
			failed = append(failed, err)
			continue
		case a.json():
			if err := a.object(inForecast(f)); err != nil {
				return err
			}
		}
		g.add(f.Topic, count(f.DueNow), count(f.Upcoming()), count(f.Later), sparkline(f.Buckets))
	}
	if !a.json() {
		err = a.printOr(g, "there are no topics with the prefix %q", a.prefix)
	}
	return errors.Join(append(failed, err)...)
}

// forecastOne shows one topic, and what it takes to handle what falls due.
func (a *app) forecastOne(ctx context.Context, topic string, f forecast) error {
	if f.query.Group == "" {
		group, err := a.onlyGroup(ctx, topic)
		if err != nil {
			return err
		}
		f.query.Group = group
	}
	perSecond, err := a.rateOf(ctx, topic, &f)
	if err != nil {
		return err
	}
	counted, err := a.admin.Forecast(ctx, topic, f.query)
	if err != nil {
		return err
	}
	if counted.At.After(f.at) && !f.at.Before(f.began.Add(-time.Second)) {
		f.at = time.Time{} // now: it has come since the command was read, a moment before it began
	}
	o := inForecast(counted)
	if perSecond >= 0 {
		e := counted.Estimate(perSecond)
		o.Estimate = &estimateJSON{e.Rate, f.measured, stamp{e.GoneAt}, e.Peak, stamp{e.PeakAt}, e.Left}
	}
	if f.perWorker.Messages > 0 {
		n, err := counted.Workers(admin.Demand{PerWorker: inSeconds(f.perWorker), Within: f.within, At: f.at, Rate: max(0, perSecond)})
		if err != nil {
			return err
		}
		o.Workers = &n
	}
	if a.json() {
		return a.object(o)
	}
	return a.showForecast(counted, o, f)
}

// onlyGroup is the group of a topic that has one; "" if it has none, or several.
func (a *app) onlyGroup(ctx context.Context, topic string) (string, error) {
	groups, err := a.admin.Groups(ctx, topic)
	groups = slices.DeleteFunc(groups, func(g admin.GroupStats) bool { return g.State != admin.GroupActive })
	if err != nil || len(groups) != 1 {
		return "", err
	}
	return groups[0].Group, nil
}

// inSeconds is a rate in messages a second.
func inSeconds(r redisdelay.Rate) float64 { return float64(r.Messages) / r.Per.Seconds() }

// rateOf is how many messages a second are handled: as given, or measured. Negative if that is not known.
func (a *app) rateOf(ctx context.Context, topic string, f *forecast) (float64, error) {
	if f.rate.Messages > 0 {
		return inSeconds(f.rate), nil
	}
	if f.query.Group == "" { // who handles the messages of none?
		return -1, nil
	}
	first, err := a.admin.Forecast(ctx, topic, admin.ForecastQuery{Span: 2 * f.measure, Buckets: admin.MaxBuckets, Group: f.query.Group})
	if err != nil || first.Backlog()+first.Upcoming() == 0 { // nothing to handle
		return -1, err
	}
	if err := a.wait(ctx, f.measure); err != nil {
		return -1, err
	}
	second, err := a.admin.Forecast(ctx, topic, f.query)
	f.measured, f.allCame = true, second.Backlog() == 0
	return first.RateUntil(second), err
}

func (a *app) showForecast(c admin.Forecast, o forecastJSON, f forecast) error {
	now := c.At.Local()
	lines := &fields{}
	lines.add("topic", paint(headerStyle, c.Topic))
	lines.add("group", cmp.Or(c.Group, "none: only what no group has been given yet; --group adds what waits for one"))
	lines.add("waiting", humanize.Count(c.DueNow, "message", "messages"))
	if c.InDelivery > 0 {
		lines.add("in delivery", humanize.Count(c.InDelivery, "message", "messages"))
	}
	lines.add("next "+humanize.Duration(f.query.Span), humanize.Count(c.Upcoming(), "message", "messages"))
	lines.add("later", humanize.Count(c.Later, "message", "messages"))
	if e := o.Estimate; e != nil {
		lines.add("rate", rateWords(f, e.RatePerSecond))
		lines.add("all handled", goneWords(e, c))
		if e.Peak > c.Backlog() {
			lines.add("most", fmt.Sprintf("%s at %s", humanize.Count(e.Peak, "message", "messages"), humanize.Absolute(e.PeakAt.Time, now)))
		}
	} else {
		lines.add("rate", "not known: nothing is due to measure it by, or there is no group; want --rate")
	}
	if o.Workers != nil {
		begin := "now"
		if !f.at.IsZero() {
			begin = humanize.Absolute(f.at, now)
		}
		lines.add("workers", fmt.Sprintf("%s from %s on handle in %s all that is due by then", humanize.Number(*o.Workers), begin, humanize.Duration(f.within)))
	}
	if err := a.printFields(lines); err != nil {
		return err
	}
	return a.showBuckets(c)
}

func rateWords(f forecast, perSecond float64) string {
	text := fmt.Sprintf("%.4g a second", perSecond)
	if f.measured {
		text += ", measured for " + humanize.Duration(f.measure)
	}
	if f.allCame {
		text += "; that is all that came"
	}
	return text
}

// goneWords says when all is handled.
func goneWords(e *estimateJSON, c admin.Forecast) string {
	switch {
	case c.Backlog() == 0:
		return "now"
	case !e.GoneAt.IsZero():
		return humanize.Full(e.GoneAt.Time, c.At.Local())
	case e.RatePerSecond == 0:
		return "never: nothing is handled"
	}
	return fmt.Sprintf("not within %s: %s would be left", humanize.Duration(c.Until().Sub(c.At)), humanize.Count(e.Left, "message", "messages"))
}

// showBuckets draws a bar for each bucket.
func (a *app) showBuckets(f admin.Forecast) error {
	g := a.newGrid("UNTIL", "#IN", "#MESSAGES", "#RETRIES", "CHART")
	most := mostOf(f.Buckets)
	for _, b := range f.Buckets {
		g.add(humanize.Absolute(b.Until, f.At.Local()), humanize.Duration(b.Until.Sub(f.At)), count(b.Messages), count(b.Retries),
			strings.Repeat("█", scaled(b.Messages, most, barWidth)))
	}
	if err := a.printf("\n"); err != nil {
		return err
	}
	return a.print(g.withoutZeros("RETRIES"))
}

func mostOf(buckets []admin.Bucket) int {
	most := 0
	for _, b := range buckets {
		most = max(most, b.Messages)
	}
	return most
}

// scaled is a part of so many steps; 0 only for 0.
func scaled(n, most, steps int) int {
	if n == 0 {
		return 0
	}
	return max(1, int(float64(n)/float64(most)*float64(steps)))
}

// sparkline is a sign for each bucket.
func sparkline(buckets []admin.Bucket) string {
	signs := []rune("·▁▂▃▄▅▆▇█")
	most := mostOf(buckets)
	var b strings.Builder
	for _, one := range buckets {
		b.WriteRune(signs[scaled(one.Messages, most, len(signs)-1)])
	}
	return b.String()
}
