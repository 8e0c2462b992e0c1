package admin

import (
	"fmt"
	"math"
	"time"
)

// Estimate is what becomes of what is due if consumers go on at a steady rate. It is arithmetic on the counts of a
// Forecast, and assumes what these do not say:
//
//   - The rate stays: no pause, no limit that is lower, no ordering key with more than its share.
//   - Nothing comes but what the Forecast has: no message that is published from now on, no retry of one that fails
//     from now on.
//   - The messages of a bucket fall due evenly. A storm that is shorter than its bucket looks calmer than it is.
type Estimate struct {
	Rate float64 // messages a second, as given

	// GoneAt is when all that is due has been handled for the first time: Forecast.At if nothing is due now.
	// Zero: not within the Forecast, or never, with a Rate of 0.
	GoneAt time.Time

	// Peak is the most messages that are due and not handled, now or at the end of a bucket, and PeakAt when
	// that is first so. The last of them waits for Peak / Rate seconds.
	Peak   int
	PeakAt time.Time

	Left int // messages that are due and not handled at the end of the last bucket
}

// Backlog is how many messages are due and not handled yet: they wait, or a consumer holds them.
func (f Forecast) Backlog() int { return f.DueNow + f.InDelivery }

// Estimate returns what becomes of the backlog if so many messages a second are handled. Less than 0 counts as 0.
func (f Forecast) Estimate(rate float64) Estimate {
	rate = max(0, rate)
	left := float64(f.Backlog())
	e := Estimate{Rate: rate, Peak: f.Backlog(), PeakAt: f.At}
	if left == 0 {
		e.GoneAt = f.At
	}
	for _, b := range f.Buckets {
		shrinks := rate - float64(b.Messages)/b.seconds() // a second
		if gone := left / shrinks; e.GoneAt.IsZero() && shrinks > 0 && gone <= b.seconds() {
			e.GoneAt = b.After.Add(time.Duration(gone * float64(time.Second)))
		}
		left = max(0, left-shrinks*b.seconds())
		if n := ceil(left); n > e.Peak {
			e.Peak, e.PeakAt = n, b.Until
		}
	}
	e.Left = ceil(left)
	return e
}

func (b Bucket) seconds() float64 { return b.Until.Sub(b.After).Seconds() }

// passed is how much of a bucket is over at a time, from 0 to 1.
func (b Bucket) passed(at time.Time) float64 {
	return min(1, max(0, at.Sub(b.After).Seconds()/b.seconds()))
}

// ceil is the next whole number, but for what is left over of divisions.
func ceil(n float64) int { return int(math.Ceil(n - 1e-6)) }

// Demand is what workers are to manage.
type Demand struct {
	PerWorker float64       // messages that one worker handles in a second
	Within    time.Duration // how long the workers may take
	At        time.Time     // when they begin; zero: Forecast.At

	// Rate is how many messages a second are handled until At. 0: none.
	Rate float64
}

// Workers returns how many workers are needed from Demand.At on, or from Forecast.At if that is zero, so that Demand.Within
// later they have handled all that is due by then. It counts a bucket as a whole that ends after Demand.At and begins before
// the end, since all its messages may be due between; so with buckets longer than Within, it returns more than are needed. It
// returns 0 if nothing is due by then, and never more than one worker for each message. Otherwise it assumes what Estimate does.
//
// A program that calls it again and again with At zero learns of a storm Within before it comes. So Within must not be
// shorter than the time that workers need to start.
//
// The error is a *QueryError, also if At is before the Forecast, or At and Within go on after its end.
func (f Forecast) Workers(d Demand) (int, error) {
	if d.At.IsZero() {
		d.At = f.At
	}
	if err := f.covers(d); err != nil {
		return 0, err
	}
	end := d.At.Add(d.Within)
	left, comes := float64(f.Backlog()), 0.0
	for _, b := range f.Buckets {
		before, messages := b.passed(d.At), float64(b.Messages)
		left -= before * max(0, d.Rate) * b.seconds()
		switch {
		case before == 1:
			left += messages
		case b.After.Before(end):
			comes += messages
		}
		left = max(0, left)
	}
	messages := ceil(left + comes)
	if messages == 0 {
		return 0, nil
	}
	needed := float64(messages) / (d.PerWorker * d.Within.Seconds())
	return max(1, ceil(min(needed, float64(messages)))), nil
}

// covers checks that the Forecast says what the demand is about.
func (f Forecast) covers(d Demand) error {
	switch {
	case d.PerWorker <= 0 || math.IsNaN(d.PerWorker):
		return &QueryError{"PerWorker", fmt.Sprintf("is %v, want more than 0", d.PerWorker)}
	case d.Within <= 0:
		return &QueryError{"Within", fmt.Sprintf("is %s, want more than 0", d.Within)}
	case d.At.Before(f.At):
		return &QueryError{"At", "is before the Forecast"}
	case d.At.After(f.Until()):
		return &QueryError{"At", "is after the end of the Forecast"}
	case d.At.Add(d.Within).After(f.Until()):
		return &QueryError{"Within", "goes on after the end of the Forecast"}
	}
	return nil
}

// RateUntil is how many messages a second were handled between this Forecast and a later one of the same query: what
// was due at first, and what has fallen due since, without what is due now. A delivery that ended in
// a retry counts, too. What was published meanwhile and is due is taken for work that was not done, so the rate is too low
// by that, and at the lowest 0. If nothing waits at the end, consumers could handle more than they did.
//
// The later Forecast must be made before the end of this one. The shorter the buckets of this one, the more exact it is.
func (f Forecast) RateUntil(later Forecast) float64 {
	took := later.At.Sub(f.At).Seconds()
	if took <= 0 {
		return 0
	}
	came := 0.0
	for _, b := range f.Buckets {
		came += b.passed(later.At) * float64(b.Messages)
	}
	return max(0, (float64(f.Backlog()-later.Backlog())+came)/took)
}
