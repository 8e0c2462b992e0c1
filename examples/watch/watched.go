package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	watermillmetrics "github.com/ThreeDotsLabs/watermill/components/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/dashboard"
	"github.com/redisdelay/watermill-redisdelay/examples/orders/shop"
	"github.com/redisdelay/watermill-redisdelay/observe"
	redisdelayotel "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
	redisdelayprom "github.com/redisdelay/watermill-redisdelay/redisdelayprom"
)

// flushing is how long the last traces may take to be written.
const flushing = 5 * time.Second

// watched is the service of orders with all that watches it.
type watched struct {
	service  *shop.Service
	registry *prometheus.Registry
	traces   *sdktrace.TracerProvider
	load     float64
	refused  prometheus.Counter // orders of the load
	page     *dashboard.Dashboard
}

func newWatched(client redis.UniversalClient, o options, logger *slog.Logger) (*watched, error) {
	w := &watched{registry: prometheus.NewRegistry(), load: o.load, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "orders_refused_total", Help: "Orders of the load that were refused.",
	})}
	metrics, err := redisdelayprom.New(redisdelayprom.Config{}) // what this process does
	if err != nil {
		return nil, err
	}
	operator, err := admin.New(admin.Config{Client: client})
	if err != nil {
		return nil, err
	}
	backlog, err := redisdelayprom.NewCollector(redisdelayprom.CollectorConfig{Admin: operator, MaxAge: time.Second}) // what is in Redis
	if err != nil {
		return nil, err
	}
	if w.page, err = dashboard.New(dashboard.Config{Admin: operator}); err != nil { // the same for people, who change nothing
		return nil, err
	}
	if err := errors.Join(w.registry.Register(metrics), w.registry.Register(backlog), w.registry.Register(w.refused)); err != nil {
		return nil, err
	}
	telemetry, err := w.newTelemetry(o)
	if err != nil {
		return nil, err
	}
	w.service, err = shop.New(shop.Config{
		Client: client, PayWithin: o.payWithin, Logger: logger,
		Observer: observe.Join(metrics.Observer(), telemetry.Observer()), Publisher: telemetry.Publisher,
	})
	if err != nil {
		return nil, err
	}
	telemetry.AddTo(w.service.Router)
	if o.load > 0 {
		w.service.Router.AddMiddleware(strain)
	}
	watermillmetrics.NewPrometheusMetricsBuilder(w.registry, "", "").AddPrometheusRouterMetrics(w.service.Router)
	w.service.Mux.Handle("/dashboard/", http.StripPrefix("/dashboard", w.page))
	w.service.Mux.Handle("GET /metrics", promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{}))
	return w, nil
}

// newTelemetry makes traces; nobody sees them if there is nowhere to write them.
func (w *watched) newTelemetry(o options) (*redisdelayotel.Telemetry, error) {
	if o.traces == nil {
		w.traces = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	} else {
		exporter, err := stdouttrace.New(stdouttrace.WithWriter(o.traces))
		if err != nil {
			return nil, err
		}
		w.traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	}
	return redisdelayotel.New(redisdelayotel.Config{TracerProvider: w.traces})
}

// serve runs the service, and the load if there is one, until ctx ends.
func (w *watched) serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded := make(chan error, 1)
	go func() {
		defer cancel() // a load that fails ends the service
		loaded <- generate(ctx, "http://"+listener.Addr().String(), w.load, w.refused)
	}()
	stopPage := context.AfterFunc(ctx, func() { _ = w.page.Close() }) // the service waits for open pages
	defer stopPage()
	err := w.service.Serve(ctx, listener)
	cancel()
	err = errors.Join(err, <-loaded, w.page.Close())
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), flushing)
	defer stop()
	return errors.Join(err, w.traces.Shutdown(ctx))
}
