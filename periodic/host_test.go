package periodic_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// TestHostsWithWrongClocksDoubleAndLoseNoTick: one is an hour slow, and one an hour fast. Each runs the schedule for a while,
// and nobody else does.
func TestHostsWithWrongClocksDoubleAndLoseNoTick(t *testing.T) {
	t.Parallel()
	const each = 2 // more than are stored ahead
	server, prefix := redistest.Shared(t), prefixOf(t)
	ticks := subscribe(t, server.Client(t), prefix, "beats")
	var got []periodic.Tick
	for i, wrong := range []time.Duration{-time.Hour, time.Hour, -time.Hour} {
		for deadline := time.Now().Add(20 * time.Second); len(got) < (i+1)*each; {
			require.True(t, time.Now().Before(deadline), "ticks are lost with a clock that is wrong by %s: %v", wrong, got)
			showing := time.Now().Add(wrong)
			synctest.Test(t, func(t *testing.T) { runOnHost(t, showing, server, prefix) })
			select {
			case tick := <-ticks:
				assert.False(t, time.Now().Before(tick.Nominal), "%s is early", tick)
				got = append(got, tick)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	for i, tick := range got[1:] {
		assert.Equal(t, got[i].Nominal.Add(time.Second), tick.Nominal)
		assert.Zero(t, tick.Missed)
	}
}

// runOnHost runs a schedule for each second for a moment on a host whose clock, that of a bubble, shows a time. The clock
// stands still while Redis is at work.
func runOnHost(t *testing.T, showing time.Time, server *redistest.Server, prefix string) {
	t.Helper()
	time.Sleep(time.Until(showing.Round(0))) //nolint:forbidigo // sets the bubble's clock
	p := newPeriodic(t, server.Client(t), prefix)
	_, err := p.Apply(t.Context(), "hearts", 1, []periodic.Schedule{{
		ID: "beat", Topic: "beats", Cron: "@every 1s", Zone: "Europe/Berlin", StoreAtLeast: 1, StoreAhead: time.Second,
		CatchUp: periodic.CatchUpAll(time.Minute), // a machine that stands still makes ticks late
	}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	require.NoError(t, p.Run(ctx))
}

// TestAHostWithOldTimeZonesDoublesAndLosesNoTick: its ticks are at a wrong hour, but each day has one, also when a host with the
// right time zones takes over.
func TestAHostWithOldTimeZonesDoublesAndLosesNoTick(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"behind": 0, "ahead": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, redistest.Client(t))
			require.NoError(t, l.p.Set(t.Context(), periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * *", Zone: "Europe/Berlin"}))
			stop := l.startHost(zoneinfo(t, ahead))
			l.wants(4, 0)
			l.comesTo(4)
			stop()
			l.wants(6, 0)
			run(t, l.p)
			l.comesTo(6)
			assert.Equal(t, []bool{true, true, false, false, true, true}, l.atSeven())
		})
	}
}

// wants changes how many ticks are stored ahead, as the schedule's definition says. It is to be taken since some time ago.
func (l *lab) wants(ticks int, ago time.Duration) {
	l.t.Helper()
	revision, rest := l.definition()
	stored := regexp.MustCompile(`"StoreAtLeast":\d+`)
	require.Regexp(l.t, stored, rest)
	l.redefine(revision, stored.ReplaceAllString(rest, `"StoreAtLeast":`+strconv.Itoa(ticks)), ago)
}

// atSeven tells which pending ticks are at seven in Berlin. There must be one on each day.
func (l *lab) atSeven() (are []bool) {
	l.t.Helper()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(l.t, err)
	var dues []time.Time
	for text := range l.pending() {
		due, err := time.Parse(time.RFC3339, text)
		require.NoError(l.t, err)
		dues = append(dues, due.In(berlin))
	}
	slices.SortFunc(dues, time.Time.Compare)
	for i, due := range dues {
		assert.Equal(l.t, dues[0].AddDate(0, 0, i).Format(time.DateOnly), due.Format(time.DateOnly), "%v", dues)
		are = append(are, due.Hour() == 7)
	}
	return are
}

// zoneinfo is a directory with a file in the form of the tz database, by which Berlin has never changed its clocks.
func zoneinfo(t *testing.T, aheadOfUTC time.Duration) string {
	t.Helper()
	var file bytes.Buffer
	file.WriteString("TZif" + string(make([]byte, 16)))
	for _, field := range []any{
		[6]uint32{4: 1, 5: 4}, // a zone, and four bytes of names
		int32(aheadOfUTC.Seconds()), [2]byte{}, []byte("OLD\x00"),
	} {
		require.NoError(t, binary.Write(&file, binary.BigEndian, field))
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "Europe"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Europe", "Berlin"), file.Bytes(), 0o600))
	return dir
}

// hostEnv has the job of a process that runs schedules until its standard input ends.
const hostEnv = "REDISDELAY_TEST_HOST"

type hostJob struct{ Addr, Prefix string }

// startHost runs the schedules in another process, which has time zones of its own.
func (l *lab) startHost(zoneinfo string) (stop func()) {
	l.t.Helper()
	job, err := json.Marshal(hostJob{redistest.Shared(l.t).Addr, l.prefix})
	require.NoError(l.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), hostEnv+"="+string(job), "ZONEINFO="+zoneinfo)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(l.t, err)
	require.NoError(l.t, cmd.Start())
	stop = sync.OnceFunc(func() {
		assert.NoError(l.t, stdin.Close())
		assert.NoError(l.t, cmd.Wait())
	})
	l.t.Cleanup(stop)
	return stop
}

// beHost is the main function of that process.
func beHost(text string) error {
	var job hostJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	p, err := periodic.New(periodic.Config{
		Client: redis.NewClient(&redis.Options{Addr: job.Addr}), Prefix: job.Prefix, PollInterval: 100 * time.Millisecond,
	}, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the process that has started this one
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return p.Run(ctx)
}
