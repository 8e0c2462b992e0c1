package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/dashboard"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
)

const (
	picturePoints = 150 // that a line has at most
	patience      = 15 * time.Second
)

// span is the time that is shown.
type span struct {
	from, to time.Time
	step     time.Duration // between points
}

// rates is over how long Grafana would take rates.
func (s span) rates() time.Duration { return max(10*scrapeEvery, 4*s.step) }

// answer is what a panel shows.
type answer struct {
	dashboard.Panel
	lines []line
}

// line is a series of a panel.
type line struct {
	name   string
	points []promtest.Point
}

// ask asks all that the dashboard asks. Scrapes may still be on their way, so it waits a while
// for those that have no answer.
func (s *scene) ask(ctx context.Context, d *dashboard.Dashboard) ([]answer, span, error) {
	for end := time.Now().Add(patience); ; {
		shown := span{from: s.began, to: time.Now(), step: max(scrapeEvery, s.lasts/picturePoints)}
		answers, err := ask(ctx, s.prometheus, d, shown)
		if err != nil || unanswered(answers) == nil || time.Now().After(end) {
			return answers, shown, err
		}
		select {
		case <-time.After(scrapeEvery):
		case <-ctx.Done():
			return nil, shown, ctx.Err()
		}
	}
}

func ask(ctx context.Context, prometheus *promtest.Server, d *dashboard.Dashboard, s span) ([]answer, error) {
	var answers []answer
	for _, p := range d.Panels {
		a := answer{Panel: p}
		for _, t := range p.Targets {
			series, err := prometheus.QueryRange(ctx, t.Query(s.rates()), s.from, s.to, s.step)
			if err != nil {
				return nil, fmt.Errorf("panel %q: %w", p.Title, err)
			}
			for _, one := range series {
				if points := numbers(one.Points); len(points) > 0 {
					a.lines = append(a.lines, line{t.Legend(one.Labels), points})
				}
			}
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// numbers drops points that are none, as a quantile of nothing is.
func numbers(points []promtest.Point) (list []promtest.Point) {
	for _, p := range points {
		if !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0) {
			list = append(list, p)
		}
	}
	return list
}

func (l line) last() float64 { return l.points[len(l.points)-1].Value }

func (l line) most() float64 {
	most := math.Inf(-1)
	for _, p := range l.points {
		most = max(most, p.Value)
	}
	return most
}

// printAnswers prints what the panels show at last, and at most.
func printAnswers(w io.Writer, answers []answer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, a := range answers {
		if a.Type == dashboard.Row {
			_, _ = fmt.Fprintf(table, "\n%s\t\tLAST\tMOST\n", strings.ToUpper(a.Title)) // Flush has the error
			continue
		}
		for i, l := range a.lines {
			title := a.Title
			if i > 0 {
				title = ""
			}
			f := a.FieldConfig.Defaults
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", title, l.name, f.Text(l.last()), f.Text(l.most()))
		}
		if len(a.lines) == 0 {
			_, _ = fmt.Fprintf(table, "  %s\tno answer\n", a.Title)
		}
	}
	return table.Flush()
}

// unanswered is an error if a panel has nothing to show.
func unanswered(answers []answer) error {
	var titles []string
	for _, a := range answers {
		if a.Type != dashboard.Row && len(a.lines) == 0 {
			titles = append(titles, a.Title)
		}
	}
	if len(titles) == 0 {
		return nil
	}
	return fmt.Errorf("panels without an answer: %s", strings.Join(titles, ", "))
}
