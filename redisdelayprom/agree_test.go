package redisdelayprom

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/chaos"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var load = flag.Duration("load", 3*time.Second, "how long the workers of TestARealPrometheusAgreesWithTheChecker publish")

// serve shows what a registry has, and returns the address.
func serve(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// process is a worker process.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when all its output is in the history
}

// trial is workers, a Prometheus that scrapes them and Redis, and a checker.
type trial struct {
	*fixture.Scene
	prometheus *prometheusServer
	history    chaos.History
	addr       string // of Redis
	started    int
	shown      string // where the last worker shows its metrics
}

// start starts a worker.
func (r *trial) start() *process {
	r.T.Helper()
	r.started++
	name := fmt.Sprint("w", r.started)
	text, err := json.Marshal(job{Addr: r.addr, Topic: r.Topic, Worker: name})
	require.NoError(r.T, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), workerEnv+"="+string(text)), os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(r.T, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(r.T, err)
	require.NoError(r.T, cmd.Start())
	p := &process{name: name, cmd: cmd, stdin: stdin, done: make(chan struct{})}
	r.T.Cleanup(p.kill)
	lines := bufio.NewScanner(stdout)
	hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	require.True(r.T, lines.Scan(), "the address")
	hung.Stop()
	r.shown = lines.Text()
	r.prometheus.scrape(name, r.shown)
	go func() { // ends with the process, which the test ends
		defer close(p.done)
		for lines.Scan() {
			var e chaos.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil { // the last line may be cut
				r.history.Add(e)
			}
		}
	}()
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.cmd.Wait() // killed
}

func (p *process) tell(t *testing.T, word string) {
	t.Helper()
	_, err := fmt.Fprintln(p.stdin, word)
	require.NoError(t, err)
}

// killHolding kills a worker whose handlers all have a message, once Prometheus has scraped
// what it did before: what a process counts after its last scrape is lost with it.
func (r *trial) killHolding(p *process) {
	r.T.Helper()
	p.tell(r.T, holdWord)
	all := float64(perGroup * len(workerGroups))
	quiet := fmt.Sprintf(`sum(%s{worker=%q}) == %v and sum(redisdelay_in_flight_messages{worker=%[2]q}) == %[3]v`, heldName, p.name, all)
	r.until(quiet, func(values map[string]float64) bool { return len(values) == 1 })
	before := float64(time.Now().UnixMilli()) / 1000
	r.until(fmt.Sprintf(`timestamp(%s{worker=%q})`, heldName, p.name), func(values map[string]float64) bool {
		return values[p.name] > before
	})
	p.kill()
}

// until waits until an expression has the right values.
func (r *trial) until(expression string, right func(map[string]float64) bool) {
	r.T.Helper()
	require.Eventually(r.T, func() bool { return right(r.prometheus.query(r.T, expression)) }, fixture.Soon, 100*time.Millisecond, expression)
}

// TestARealPrometheusAgreesWithTheChecker to the message, after a load of messages that are
// acked, nacked, buried, poisoned, garbled and not due, of two processes at a time of which
// one after the other is killed with messages in hand.
func TestARealPrometheusAgreesWithTheChecker(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := &trial{Scene: fixture.NewOn(t, server), prometheus: startPrometheus(t, promtest.Config{}), addr: server.Addr}
	_, registry := newBacklog(r.Scene, CollectorConfig{MaxAge: -1})
	r.prometheus.scrape("redis", serve(t, registry))
	stays, goes := r.start(), r.start()
	for end := time.Now().Add(*load); ; {
		round := time.NewTimer(min(3*time.Second, max(0, time.Until(end))))
		<-round.C
		r.killHolding(goes)
		goes = r.start()
		if time.Now().After(end) {
			break
		}
	}
	stays.tell(t, stopWord)
	goes.tell(t, stopWord)
	r.agree()
	require.Empty(t, r.prometheus.query(t, `redisdelay_early_deliveries_total > 0`))
}

// agree waits until Prometheus shows the same sums as the checker.
func (r *trial) agree() {
	r.T.Helper()
	total := func(expression, by string) string { // of processes that are gone as well
		return fmt.Sprintf("sum by (%s) (max_over_time(redisdelay_%s[1h]))", by, expression)
	}
	var said string
	require.EventuallyWithT(r.T, func(c *assert.CollectT) {
		p := r.prometheus
		published, handled, refused := r.sums()
		require.NotZero(c, published)
		assert.Equal(c, float64(published), p.query(c, total(`published_messages_total{outcome="ok"}`, ""))[""], "published")
		acked, nacked := p.query(c, total(`settled_messages_total{how="ack"}`, "group")), p.query(c, total(`settled_messages_total{how=~"nack|bury"}`, "group"))
		buried, dead := p.query(c, total(`buried_messages_total`, "group")), p.query(c, "sum by (group) (redisdelay_group_dead_letters)")
		scheduled := p.query(c, "sum(redisdelay_topic_scheduled_messages)")[""]
		waiting := p.query(c, "sum by (group) (redisdelay_group_queued_messages + redisdelay_group_in_line_messages + redisdelay_group_retrying_messages + redisdelay_group_in_delivery_messages)")
		for _, g := range workerGroups {
			assert.Equal(c, float64(handled[g]), acked[g], "acked by %s", g)
			assert.Equal(c, float64(refused[g]), nacked[g], "nacked by %s", g)
			assert.Equal(c, dead[g], buried[g], "dead letters of %s", g)
			assert.Zero(c, waiting[g], "waits for %s", g)
			assert.Equal(c, float64(published), acked[g]+dead[g]+scheduled+waiting[g], "published = acked + dead + waiting of %s", g)
		}
		said = fmt.Sprintf("published %d; acked %v, dead %v, scheduled %v", published, acked, dead, scheduled)
	}, 3*fixture.Soon, time.Second) // what a killed worker held comes back after its lease
	r.T.Log(said)
}

// sums are what the checker knows: messages published, and by group those handled, and
// deliveries refused.
func (r *trial) sums() (published int, handled, refused map[string]int) {
	handled, refused = map[string]int{}, map[string]int{}
	seen := map[string]bool{}
	for _, e := range r.history.Events() {
		switch {
		case e.Kind == chaos.Published && e.Outcome == chaos.OK:
			published++
		case e.Kind == chaos.Handled && !seen[e.Group+e.UUID]:
			seen[e.Group+e.UUID] = true
			handled[e.Group]++
		case e.Kind == chaos.Refused:
			refused[e.Group]++
		}
	}
	return published, handled, refused
}
