package redisdelayprom

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var load = flag.Duration("load", time.Second, "how long TestPrometheusAgreesWithTheChecker publishes")

// Kinds of messages. Most are plain.
const (
	plain   = iota
	poison  // nacked until it is a dead message
	buries  // its handler buries it
	garbled // cannot be decoded
	once    // nacked once
	later   // due in an hour
	kinds
)

const kindKey = "kind"

// garbling cannot decode garbled messages.
type garbling struct{ redisdelay.DefaultMarshaler }

func (g garbling) Unmarshal(topic string, body []byte) (*message.Message, error) {
	msg, err := g.DefaultMarshaler.Unmarshal(topic, body)
	if err == nil && msg.Metadata.Get(kindKey) == strconv.Itoa(garbled) {
		err = errors.New("garbled")
	}
	return msg, err
}

// trial is a load, Prometheuses that scrape those who make it, and a checker that counts.
type trial struct {
	*fixture.Scene
	classic, native *promtest.Server
	published       atomic.Int64
	acked, refused  map[string]*atomic.Int64 // by group
}

func newTrial(s *fixture.Scene) *trial {
	groups := func() map[string]*atomic.Int64 { return map[string]*atomic.Int64{"billing": {}, "mail": {}} }
	r := &trial{Scene: s, acked: groups(), refused: groups()}
	r.classic = r.start(promtest.Config{})
	r.native = r.start(promtest.Config{Flags: []string{"--enable-feature=native-histograms"}}) // it drops classic ones
	return r
}

func (r *trial) start(config promtest.Config) *promtest.Server {
	r.T.Helper()
	config.Interval = 500 * time.Millisecond
	s, err := promtest.Start(r.T.Context(), config)
	require.NoError(r.T, err)
	r.T.Cleanup(func() {
		assert.NoError(r.T, s.Stop())
		if r.T.Failed() {
			r.T.Logf("prometheus says: %s", s.Log())
		}
	})
	return s
}

// shows lets both Prometheuses scrape a registry.
func (r *trial) shows(name string, registry *prometheus.Registry) {
	r.T.Helper()
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	r.T.Cleanup(server.Close)
	for _, p := range []*promtest.Server{r.classic, r.native} {
		require.NoError(r.T, p.Scrape(name, strings.TrimPrefix(server.URL, "http://"), nil))
	}
}

// worker handles messages, with metrics of its own, and returns a publisher with the same metrics.
func (r *trial) worker(name string) *redisdelay.Publisher {
	r.T.Helper()
	metrics, registry := newMetrics(r.T, Config{})
	r.shows(name, registry)
	for group := range r.acked {
		messages := r.Subscribe(func(c *subConfig) {
			c.ConsumerGroup, c.MaxInFlight, c.MaxDeliveries = group, 5, 4
			c.NackDelay = func(int) time.Duration { return 20 * time.Millisecond }
			c.Unmarshaler, c.Observer = garbling{}, metrics.Observer()
		})
		go func() { // ends with the subscription
			for msg := range messages {
				r.handle(group, msg)
			}
		}()
	}
	return r.Publisher(func(c *redisdelay.PublisherConfig) { c.Observer = metrics.Observer() })
}

// publish publishes until ctx ends, one message at a time.
func (r *trial) publish(ctx context.Context, publisher *redisdelay.Publisher) {
	for i := 0; ctx.Err() == nil; i++ {
		kind, by := max(plain, i%20-20+kinds), time.Duration(rand.IntN(200))*time.Millisecond
		if kind == later {
			by = time.Hour
		}
		msg := fixture.Delayed(watermill.NewUUID(), by)
		msg.Metadata.Set(kindKey, strconv.Itoa(kind))
		if publisher.Publish(r.Topic, msg) == nil {
			r.published.Add(1)
		}
		select {
		case <-time.After(time.Duration(rand.IntN(4)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (r *trial) handle(group string, msg *message.Message) {
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	switch kind, _ := strconv.Atoi(msg.Metadata.Get(kindKey)); {
	case kind == buries:
		_ = delivery.Bury("its handler says so")
	case kind == poison || kind == once && delivery.Attempt == 1:
	default:
		r.acked[group].Add(1)
		msg.Ack()
		return
	}
	r.refused[group].Add(1)
	msg.Nack()
}

// ask returns the values that an expression has now, by group.
func (r *trial) ask(c require.TestingT, expression string) map[string]float64 {
	answer, err := r.classic.Query(r.T.Context(), expression)
	require.NoError(c, err)
	values := map[string]float64{}
	for _, series := range answer {
		values[series.Labels["group"]] = series.Value
	}
	return values
}

// until waits until an expression has an answer.
func (r *trial) until(expression string) {
	r.T.Helper()
	require.EventuallyWithT(r.T, func(c *assert.CollectT) {
		assert.NotEmpty(c, r.ask(c, expression), expression)
	}, fixture.Soon, 100*time.Millisecond)
}

// TestPrometheusAgreesWithTheChecker to the message, after a load of messages that are acked, nacked, buried, poisoned,
// garbled and not due. Then Prometheus answers all queries of the dashboard.
func TestPrometheusAgreesWithTheChecker(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.Durable...)
	r := newTrial(fixture.NewOn(t, server))
	_, registry := newCollector(r.Scene, CollectorConfig{MaxAge: -1})
	r.shows("redis", registry)
	publishers := []*redisdelay.Publisher{r.worker("w1"), r.worker("w2")}
	ctx, cancel := context.WithTimeout(t.Context(), *load)
	defer cancel()
	var all sync.WaitGroup
	for _, p := range publishers {
		all.Go(func() { r.publish(ctx, p) })
	}
	all.Wait()
	require.EventuallyWithT(t, r.agree, 3*fixture.Soon, 200*time.Millisecond)

	ctx, cancel = context.WithCancel(t.Context())
	all.Go(func() { r.publish(ctx, publishers[0]) }) // else rates are 0
	defer all.Wait()
	defer cancel()
	require.NoError(t, server.Down())
	r.until(`redisdelay_failing > 0`)
	r.until(`redisdelay_calls_total{outcome="failed"} > 0`)
	server.Up()
	r.until(`redisdelay_redis_up == 1`)
	r.answersTheDashboard()
}

// agree compares the sums of Prometheus with those of the checker.
func (r *trial) agree(c *assert.CollectT) {
	sum := func(by, metric string) map[string]float64 {
		return r.ask(c, fmt.Sprintf("sum by (%s) (redisdelay_%s)", by, metric))
	}
	published := float64(r.published.Load())
	require.NotZero(c, published)
	assert.Equal(c, published, sum("", `published_messages_total{outcome="ok"}`)[""], "published")
	acked, nacked := sum("group", `settled_messages_total{settlement="ack"}`), sum("group", `settled_messages_total{settlement=~"nack|bury"}`)
	buried, dead := sum("group", "buried_messages_total"), sum("group", "group_dead_messages")
	scheduled := sum("", "topic_scheduled_messages")[""]
	waiting := r.ask(c, "sum by (group) (redisdelay_group_ready_messages + redisdelay_group_in_line_messages"+
		" + redisdelay_group_postponed_messages + redisdelay_group_in_delivery_messages)")
	for group := range r.acked {
		assert.Equal(c, float64(r.acked[group].Load()), acked[group], "acked by %s", group)
		assert.Equal(c, float64(r.refused[group].Load()), nacked[group], "nacked by %s", group)
		assert.Equal(c, dead[group], buried[group], "dead messages of %s", group)
		assert.Zero(c, waiting[group], "waits for %s", group)
		assert.Equal(c, published, acked[group]+dead[group]+scheduled, "published = acked + dead + waiting of %s", group)
	}
	assert.Zero(c, sum("", "early_deliveries_total")[""])
}

var (
	labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	placeholder = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)
)

// answersTheDashboard checks that each query has a number, with the labels that name its series.
func (r *trial) answersTheDashboard() {
	r.T.Helper()
	var dashboard struct {
		Templating struct {
			List []struct{ Type, Definition string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	require.NoError(r.T, json.Unmarshal([]byte(read(r.T, docs+"grafana/redisdelay.json")), &dashboard))
	all := strings.NewReplacer("$topic", ".*", "$group", ".*", "$__rate_interval", "5m")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			r.answers(p.Title, all.Replace(target.Expr), placeholder.FindAllStringSubmatch(target.LegendFormat, -1)...)
		}
	}
	for _, variable := range dashboard.Templating.List {
		if variable.Type == "query" {
			parts := labelValues.FindStringSubmatch(variable.Definition)
			r.answers("variable", all.Replace(parts[1]), []string{"", parts[2]})
		}
	}
}

// answers checks a query: each of labels has the name of a label at 1.
func (r *trial) answers(title, query string, labels ...[]string) {
	r.T.Helper()
	for _, p := range []*promtest.Server{r.classic, r.native} {
		require.EventuallyWithT(r.T, func(c *assert.CollectT) {
			answer, err := p.Query(r.T.Context(), query)
			require.NoError(c, err)
			numbers := 0
			for _, series := range answer {
				if !math.IsNaN(series.Value) {
					numbers++
				}
				for _, l := range labels {
					assert.Contains(c, series.Labels, l[1])
				}
			}
			assert.NotZero(c, numbers, "no answer")
		}, fixture.Soon, 100*time.Millisecond, "%s: %s", title, query)
	}
}
