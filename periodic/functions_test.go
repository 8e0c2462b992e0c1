package periodic_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// made is a function whose messages say a word; it fails without one.
func made(word string) func(periodic.Tick) (*message.Message, error) {
	return func(periodic.Tick) (*message.Message, error) {
		if word == "" {
			return nil, errors.New("no word")
		}
		return message.NewMessage("", []byte(word)), nil
	}
}

// TestAFunctionThatFailsWhileItsScheduleIsReplacedSkipsNoTick: the ticks come once the function works, in another process.
func TestAFunctionThatFailsWhileItsScheduleIsReplacedSkipsNoTick(t *testing.T) {
	yearly := periodic.Schedule{ID: "report", Topic: "reports", Cron: "@yearly", StoreAtLeast: 2}
	for name, change := range map[string]func(s *periodic.Schedule){
		"with the same times": func(s *periodic.Schedule) { s.TTL = time.Hour },
		"with other times":    func(s *periodic.Schedule) { s.Cron = "@daily" },
	} {
		t.Run(name, func(t *testing.T) {
			l, s := newLab(t, redistest.Client(t)), yearly
			s.Make = made("old")
			require.NoError(t, l.p.Set(t.Context(), s))
			require.Len(t, l.pending(), 2)

			change(&s)
			s.Make = made("")
			require.NoError(t, l.p.Set(t.Context(), s))
			assert.Empty(t, l.pending(), "of the old schedule")

			s.Make = made("new")
			other := newPeriodic(t, l.client, l.prefix)
			require.NoError(t, other.Set(t.Context(), s))
			run(t, other)
			l.comesTo(2)
			status, err := l.p.Find(t.Context(), "report", 2)
			require.NoError(t, err)
			want := map[string]string{}
			for _, at := range status.Next {
				want[at.UTC().Format(time.RFC3339)] = "new"
			}
			assert.Equal(t, want, l.pending())
		})
	}
}

// TestMissedTicksAreToldOfOnce the next one is stored, however often its function has failed before.
func TestMissedTicksAreToldOfOnceTheNextOneIsStored(t *testing.T) {
	l := newLab(t, redistest.Client(t))
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "@hourly", End: time.Now(), Make: made("")}
	require.NoError(t, l.p.Set(t.Context(), s))
	revision, rest := l.definition()
	revision -= (10 * time.Hour).Microseconds()
	require.NoError(t, l.client.HSet(t.Context(), "{"+l.prefix+":periodic}:schedules", "report", fmt.Sprint(revision, " ", rest)).Err())
	require.NoError(t, l.client.Del(t.Context(), l.key("ticks")).Err())
	var stored, missed int
	for _, word := range []string{"", "", "word"} {
		s.Make = made(word)
		p, err := periodic.New(periodic.Config{Client: l.client, Prefix: l.prefix, Observer: observe.Observer{
			Ticked: func(e observe.Ticked) { stored += e.Stored; missed += e.Missed },
		}}, nil)
		require.NoError(t, err)
		require.NoError(t, p.Set(t.Context(), s))
		runFor(t, p, 100*time.Millisecond)
	}
	assert.Equal(t, 1, stored)
	assert.Equal(t, 9, missed)
}

// TestAFunctionMayReturnTheSameMessageAgain: nothing of one tick is in the message of another one.
func TestAFunctionMayReturnTheSameMessageAgain(t *testing.T) {
	l, same := newLab(t, redistest.Client(t)), message.NewMessage("", []byte("same"))
	same.Metadata = nil
	s := periodic.Schedule{
		ID: "report", Topic: "reports", Cron: "@daily", StoreAtLeast: 3,
		Make: func(periodic.Tick) (*message.Message, error) { return same, nil },
	}
	require.NoError(t, l.p.Set(t.Context(), s))
	require.NoError(t, l.p.Trigger(t.Context(), "report"))
	s.StoreAtLeast = 2
	require.NoError(t, l.p.Set(t.Context(), s))
	var origins []periodic.Origin
	uuids := map[string]bool{}
	for _, body := range l.client.HVals(t.Context(), l.key("messages")).Val() {
		msg, err := redisdelay.DefaultMarshaler{}.Unmarshal("reports", []byte(body))
		require.NoError(t, err)
		tick, _ := periodic.TickOf(msg)
		origins, uuids[msg.UUID] = append(origins, tick.Origin), true
	}
	assert.ElementsMatch(t, []periodic.Origin{periodic.OriginSchedule, periodic.OriginSchedule, periodic.OriginTrigger}, origins)
	assert.Len(t, uuids, 3)
	assert.Empty(t, same.UUID)
	assert.Empty(t, same.Metadata)
}

// panicky is a marshaler that panics for a topic.
type panicky struct{ redisdelay.DefaultMarshaler }

func (m panicky) Marshal(topic string, msg *message.Message) ([]byte, error) {
	if topic == "bad" {
		panic("no message of this topic")
	}
	return m.DefaultMarshaler.Marshal(topic, msg)
}

func TestAPanicInTheMarshalerHoldsUpNoOtherSchedule(t *testing.T) {
	client, log := redistest.Client(t), &fixture.Log{}
	p, err := periodic.New(periodic.Config{Client: client, Prefix: prefixOf(t), Marshaler: panicky{}}, log)
	require.NoError(t, err)
	_, err = p.Apply(t.Context(), "shop", 1, []periodic.Schedule{
		{ID: "bad", Topic: "bad", Cron: "@daily", Make: made("it")}, {ID: "good", Topic: "good", Cron: "@daily", Make: made("it")},
	})
	require.NoError(t, err)
	good, err := p.Find(t.Context(), "good", 0)
	require.NoError(t, err)
	assert.Equal(t, 2, good.Stored)
	assert.Equal(t, 1, log.Count("Could not make a message"))
	assert.Equal(t, 1, log.Count("panicky.Marshal"), "the stack")

	var panicked *redisdelay.PanicError
	err = p.Set(t.Context(), periodic.Schedule{ID: "plain", Topic: "bad", Cron: "@daily"})
	require.ErrorIs(t, err, periodic.ErrInvalidSchedule)
	require.ErrorAs(t, err, &panicked)
	require.ErrorAs(t, p.Trigger(t.Context(), "bad"), &panicked)
}

// TestAScheduleThatHadEndedCountsFromNow if it gets a later end: nobody has declared the ticks between.
func TestAScheduleThatHadEndedCountsFromNow(t *testing.T) {
	l := newLab(t, redistest.Client(t))
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "@hourly", End: time.Now().Add(-30 * time.Hour)}
	require.NoError(t, l.p.Set(t.Context(), s))
	revision, rest := l.definition()
	l.redefine(revision-(48*time.Hour).Microseconds(), rest, 0)
	s.End = time.Time{}
	require.NoError(t, l.p.Set(t.Context(), s))
	for due := range l.pending() {
		assert.Greater(t, due, time.Now().UTC().Format(time.RFC3339))
	}
	l.comesTo(2)
}

// A slowFunction makes messages at once until it is slow; then it waits until the test releases it.
type slowFunction struct {
	slow    atomic.Bool
	calls   atomic.Int64 // of the slow function
	called  chan struct{}
	release func()
	make    func(periodic.Tick) (*message.Message, error)
}

func newSlowFunction() *slowFunction {
	f, released := &slowFunction{called: make(chan struct{}, 1000)}, make(chan struct{})
	f.release = sync.OnceFunc(func() { close(released) })
	f.make = func(periodic.Tick) (*message.Message, error) {
		if !f.slow.Load() {
			return made("quick")(periodic.Tick{})
		}
		f.calls.Add(1)
		f.called <- struct{}{}
		<-released
		return made("slow")(periodic.Tick{})
	}
	return f
}

// isCalled waits until the function is slow and under way.
func (f *slowFunction) isCalled(t *testing.T) {
	t.Helper()
	select {
	case <-f.called:
	case <-time.After(time.Minute):
		require.FailNow(t, "the function is not called")
	}
}

// TestASlowFunctionHoldsUpNoScheduleWithoutOne, and what it makes is stored although Redis would have no time left.
func TestASlowFunctionHoldsUpNoScheduleWithoutOne(t *testing.T) {
	client, prefix := redistest.Client(t), prefixOf(t)
	p, f := newPeriodic(t, client, prefix), newSlowFunction()
	_, err := p.Apply(t.Context(), "shop", 1, []periodic.Schedule{
		{ID: "plain", Topic: "plain", Cron: "@every 1s", StoreAtLeast: 1, StoreAhead: time.Second},
		{ID: "made", Topic: "made", Cron: "@every 1s", StoreAtLeast: 1, StoreAhead: time.Second, Make: f.make},
	})
	require.NoError(t, err)
	p.SetSettleFor(time.Second)
	f.slow.Store(true)
	ticks := subscribe(t, client, prefix, "plain")
	run(t, p)
	t.Cleanup(f.release)
	f.isCalled(t)
	behind := time.Now().Add(3 * time.Second) // what was stored ahead
	for tick := next(t, ticks); tick.Nominal.Before(behind); {
		tick = next(t, ticks)
	}
	f.release()
	require.Eventually(t, func() bool {
		return strings.Contains(strings.Join(client.HVals(context.Background(), "{"+prefix+":made:0}:messages").Val(), ""), "slow")
	}, 10*time.Second, 10*time.Millisecond)
}

// TestASlowFunctionMakesNoOtherTickLate: what was missed while it was under way is up to CatchUp.
func TestASlowFunctionMakesNoOtherTickLate(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	p := newPeriodic(t, client, prefix)
	var slow, isBlocked atomic.Bool
	blocked, released := make(chan string, 1), make(chan struct{})
	for _, id := range []string{"a", "b"} {
		require.NoError(t, p.Set(t.Context(), periodic.Schedule{
			ID: id, Topic: id, Cron: "@every 1s", StoreAtLeast: 1, StoreAhead: time.Second, CatchUp: periodic.CatchUpNone,
			Make: func(periodic.Tick) (*message.Message, error) {
				if slow.Load() && isBlocked.CompareAndSwap(false, true) {
					blocked <- id
					<-released
				}
				return made("quick")(periodic.Tick{})
			},
		}))
	}
	ticks := map[string]<-chan periodic.Tick{"a": subscribe(t, client, prefix, "b"), "b": subscribe(t, client, prefix, "a")} // of the other one
	for overdue := time.Now().Add(3 * time.Second); time.Now().Before(overdue); {
		for _, some := range ticks {
			select {
			case <-some: // what Set has stored
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	began := time.Now()
	slow.Store(true)
	run(t, p) // both are in its first round
	first := <-blocked
	<-time.After(3 * time.Second)
	late := time.Now()
	close(released)
	tick := next(t, ticks[first])
	for tick.Nominal.Before(began.Add(-time.Second)) { // what Set has stored may come as late as this
		tick = next(t, ticks[first])
	}
	assert.True(t, tick.Nominal.After(late.Add(-time.Second)))
}

// TestWhatASlowFunctionHasMadeIsStored while it makes the next one.
func TestWhatASlowFunctionHasMadeIsStored(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	p, called, goOn := newPeriodic(t, client, prefix), make(chan struct{}, 1000), make(chan struct{})
	var slow atomic.Bool
	require.NoError(t, p.Set(t.Context(), periodic.Schedule{
		ID: "made", Topic: "made", Cron: "@yearly", StoreAtLeast: 3,
		Make: func(periodic.Tick) (*message.Message, error) {
			if slow.Load() {
				called <- struct{}{}
				<-goOn
			}
			return made("it")(periodic.Tick{})
		},
	}))
	other := newPeriodic(t, client, prefix) // takes away what is stored
	require.NoError(t, other.Pause(t.Context(), "made", periodic.Pause{}))
	require.NoError(t, other.Resume(t.Context(), "made"))
	const settleFor = 2 * time.Second
	p.SetSettleFor(settleFor)
	slow.Store(true)
	run(t, p)
	t.Cleanup(func() { close(goOn) })
	fixture.Wait(t, called, "the function is called")
	<-time.After(settleFor + 100*time.Millisecond) // longer than the calls to Redis may take
	goOn <- struct{}{}
	require.Eventually(t, func() bool {
		return client.HLen(t.Context(), "{"+prefix+":made:0}:messages").Val() == 1
	}, 10*time.Second, 10*time.Millisecond)
}

// TestRunReturnsOnceItsFunctionHas returned, which it does not call for the other ticks any more.
func TestRunReturnsOnceItsFunctionHas(t *testing.T) {
	client, prefix := redistest.Client(t), prefixOf(t)
	p, f := newPeriodic(t, client, prefix), newSlowFunction()
	require.NoError(t, p.Set(t.Context(), periodic.Schedule{ID: "made", Topic: "made", Cron: "@every 1s", Make: f.make}))
	other := newPeriodic(t, client, prefix) // takes away what is stored
	require.NoError(t, other.Pause(t.Context(), "made", periodic.Pause{}))
	require.NoError(t, other.Resume(t.Context(), "made"))
	f.slow.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer f.release()
	f.isCalled(t)
	stop()
	select {
	case err := <-ended:
		require.FailNow(t, "it has ended before the function", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	f.release()
	require.NoError(t, <-ended)
	assert.EqualValues(t, 1, f.calls.Load(), "calls")
}

// runFor runs the schedules for a moment.
func runFor(t *testing.T, p *periodic.Periodic, moment time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	require.NoError(t, p.Run(ctx))
}

// TestADeclarationThatChangesNothingChangesNoFunction: of another owner, or of an older version.
func TestADeclarationThatChangesNothingChangesNoFunction(t *testing.T) {
	client, prefix := redistest.Client(t), prefixOf(t)
	p := newPeriodic(t, client, prefix)
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * 1", Make: made("shop 2")}
	_, err := p.Apply(t.Context(), "shop", 2, []periodic.Schedule{s})
	require.NoError(t, err)
	says := func(p *periodic.Periodic, want string) {
		t.Helper()
		before := client.HVals(t.Context(), "{"+prefix+":reports:0}:messages").Val()
		require.NoError(t, p.Trigger(t.Context(), "report"))
		for _, body := range client.HVals(t.Context(), "{"+prefix+":reports:0}:messages").Val() {
			if !slices.Contains(before, body) {
				assert.Contains(t, body, want)
			}
		}
	}
	says(p, "shop 2")
	for _, other := range []func(periodic.Tick) (*message.Message, error){nil, made("other")} {
		s.Make = other
		require.ErrorIs(t, p.Set(t.Context(), s), periodic.ErrOwned)
		says(p, "shop 2")
	}
	other := periodic.Schedule{ID: "z", Topic: "reports", Cron: "0 7 * * 1"}
	_, err = p.Apply(t.Context(), "store", 1, []periodic.Schedule{other})
	require.NoError(t, err)
	s.Make = made("shop 3")
	_, err = p.Apply(t.Context(), "shop", 3, []periodic.Schedule{s, other})
	require.ErrorIs(t, err, periodic.ErrOwned)
	says(p, "shop 2")
	s.Make = nil
	applied, err := p.Apply(t.Context(), "shop", 1, []periodic.Schedule{s})
	require.NoError(t, err)
	require.True(t, applied.Superseded)
	says(p, "shop 2")

	// But processes of both versions store ticks.
	older := newPeriodic(t, client, prefix)
	s.Make = made("shop 1")
	applied, err = older.Apply(t.Context(), "shop", 1, []periodic.Schedule{s})
	require.NoError(t, err)
	require.True(t, applied.Superseded)
	says(older, "shop 1")
}

// TestAFunctionOutlivesAnErrorOfRedis: its schedule may be stored all the same.
func TestAFunctionOutlivesAnErrorOfRedis(t *testing.T) {
	client, prefix := redistest.Client(t), prefixOf(t)
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * 1", Make: made("first")}
	_, err := newPeriodic(t, client, prefix).Apply(t.Context(), "shop", 1, []periodic.Schedule{s})
	require.NoError(t, err)
	p := newPeriodic(t, client, prefix)
	ended, end := context.WithCancel(t.Context())
	end()
	s.Make = made("second")
	_, err = p.Apply(ended, "shop", 1, []periodic.Schedule{s})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, p.Trigger(t.Context(), "report"))
	assert.Contains(t, strings.Join(client.HVals(t.Context(), "{"+prefix+":reports:0}:messages").Val(), ""), "second")
}

// TestAScheduleWithoutAFunctionHasItsPayload in a process, too, that had declared it with a function before another one changed it.
func TestAScheduleWithoutAFunctionHasItsPayload(t *testing.T) {
	l := newLab(t, redistest.Client(t))
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * 1", Make: made("made")}
	require.NoError(t, l.p.Set(t.Context(), s))
	s.Make, s.Payload = nil, []byte("payload")
	require.NoError(t, newPeriodic(t, l.client, l.prefix).Set(t.Context(), s))
	l.wants(4, time.Second)
	run(t, l.p)
	l.comesTo(4)
	require.NoError(t, l.p.Trigger(t.Context(), "report"))
	assert.Equal(t, []string{"payload", "payload", "payload", "payload", "payload"}, slices.Collect(maps.Values(l.pending())))
}

// TestTheFunctionOfARemovedScheduleIsForgottenWithIt: until then, another process may set the schedule again.
func TestTheFunctionOfARemovedScheduleIsForgottenWithIt(t *testing.T) {
	l := newLab(t, redistest.Client(t))
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "@yearly", Make: made("word")}
	require.NoError(t, l.p.Set(t.Context(), s))
	require.NoError(t, l.p.Remove(t.Context(), "report"))
	require.NoError(t, l.p.RoundOfMade(t.Context()))
	require.True(t, l.p.HasFunction("report"))

	other := newPeriodic(t, l.client, l.prefix)
	require.NoError(t, other.Set(t.Context(), s))
	require.NoError(t, l.p.RoundOfMade(t.Context()))
	schedules := "{" + l.prefix + ":periodic}:schedules"
	text := l.client.HGet(t.Context(), schedules, "report").Val()
	require.NoError(t, l.client.HDel(t.Context(), schedules, "report").Err()) // a failover
	require.NoError(t, l.p.RoundOfMade(t.Context()))
	require.True(t, l.p.HasFunction("report"), "it was not removed")
	require.NoError(t, l.client.HSet(t.Context(), schedules, "report", text).Err())

	require.NoError(t, other.Remove(t.Context(), "report"))
	require.NoError(t, l.p.RoundOfMade(t.Context()))
	require.True(t, l.p.HasFunction("report"))
	revision, rest := l.definition()
	l.redefine(revision-(25*time.Hour).Microseconds(), rest, time.Hour)
	run(t, l.p)
	require.Eventually(t, func() bool { return !l.p.HasFunction("report") }, time.Minute, 10*time.Millisecond)
	assert.False(t, l.client.HExists(t.Context(), schedules, "report").Val())
}
