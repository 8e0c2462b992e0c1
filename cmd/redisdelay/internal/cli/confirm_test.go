package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// answer runs a command on a terminal where somebody types an answer.
func (s *stage) answer(typed string, args ...string) result {
	s.T.Helper()
	a := newTestApp()
	a.in, a.terminal.in = strings.NewReader(typed), true
	code := a.run(context.Background(), append([]string{"--redis", s.address}, args...))
	return result{a.out.(*bytes.Buffer).String(), a.err.(*bytes.Buffer).String(), code}
}

// TestDestructiveCommandsAskForConfirmation on a terminal, and only a yes confirms.
func TestDestructiveCommandsAskForConfirmation(t *testing.T) {
	s := newStage(t)
	schedules, err := periodic.New(periodic.Config{Client: s.Client}, nil)
	require.NoError(t, err)
	require.NoError(t, schedules.Set(t.Context(), periodic.Schedule{ID: "report-eu", Topic: "reports", Cron: "0 7 * * MON", Zone: "Europe/Berlin"}))
	s.publish("orders", "u", "k", "", time.Hour)
	for _, c := range []struct {
		line, asks, done string
		left             string // a line that finds what would be gone
	}{
		{"periodic rm report-eu", `Remove schedule "report-eu" (on Monday at 07:00, Europe/Berlin)? 2 ticks are stored ahead. [y/N] `, "removed schedule", "periodic show report-eu"},
		{"cancel orders --all", `Cancel 1 message of topic "orders"? [y/N] `, "cancelled 1 message", "show orders --key k"},
	} {
		args := strings.Fields(c.line)
		for typed, message := range map[string]string{
			"n\n": "nothing is done: the answer was no", "\n": "nothing is done: the answer was no",
			"yess\n": "nothing is done: the answer was no", "": "nothing is done: there was no answer",
		} {
			r := s.answer(typed, args...)
			assert.Equal(t, exitNo, r.code, "%s: %q", c.line, typed)
			assert.NotContains(t, r.out, c.done, c.line)
			assert.Contains(t, r.err, c.asks, c.line)
			assert.Contains(t, r.err, message, "%s: %q", c.line, typed)
			s.must(strings.Fields(c.left)...)
		}
		r := s.answer("Y\n", args...)
		assert.Zero(t, r.code, r.err)
		assert.Contains(t, r.out, c.done)
		assert.Equal(t, exitNo, s.run(strings.Fields(c.left)...).code, c.left)
	}
}
