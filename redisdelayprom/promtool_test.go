package redisdelayprom

import (
	"bytes"
	"os/exec"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// TestPromtoolAcceptsAllMetrics with the real promtool. Each metric must have a series: a
// family without any is not shown, and not checked.
func TestPromtoolAcceptsAllMetrics(t *testing.T) {
	s := fixture.New(t)
	s.Subscribe(func(c *subConfig) { c.ConsumerGroup = "g" })
	s.Publisher() // closed by the end of the test
	m, registry := newMetrics(t, Config{})
	tellAll(m.Observer())
	b, _ := newBacklog(s, CollectorConfig{DueWithin: []time.Duration{time.Minute}})
	require.NoError(t, registry.Register(b))

	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, len(namesOf(m))+len(namesOf(b)))
	var text bytes.Buffer
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		require.NoError(t, err)
	}
	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = &text
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
}

// tellAll tells an observer one event of each kind.
func tellAll(o observe.Observer) {
	at := observe.Place{Topic: "t", Group: "g"}
	o.Published(observe.Published{Topic: "t", Messages: 1})
	o.Changed(observe.Changed{Topic: "t", How: observe.Canceled})
	o.Claimed(observe.Claimed{Place: at, IDs: []string{"id"}})
	o.HandedOut(observe.HandedOut{Place: at, Late: time.Millisecond})
	o.Settled(observe.Settled{Place: at, How: observe.Acked, Took: time.Second})
	o.Buried(observe.Buried{Place: at})
	o.LeaseLost(observe.LeaseLost{Place: at})
	o.Ticked(observe.Ticked{Topic: "t", Schedule: "s", Stored: 1, Missed: 1})
	o.Called(observe.Called{Script: "claim"})
	o.Failed(observe.Failed{Place: at, What: observe.Claiming})
	o.OutageBegan(observe.OutageBegan{Place: at, What: observe.Claiming})
}
