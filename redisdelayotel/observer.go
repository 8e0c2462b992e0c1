package redisdelayotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Scripts whose calls are operations of the conventions. The others are this library's own.
const claimScript = "claim"

func settles(script string) bool {
	return script == "ack" || script == "nack" || script == "release" || script == "bury"
}

// Observer returns an Observer for a SubscriberConfig, or for a PublisherConfig to log Cancel, Reschedule and ignored
// duplicates. It reports how each handled delivery ended as a span such as "ack TOPIC", a child of the handling's, from
// the Ack or Nack until Redis has recorded it, and the duration of calls to Redis.
//
// Give it to all Subscribers whose handlings this Telemetry reports, or to none: without a reported end, each handling
// takes about 1.5 kB until 4,096 later ones have ended.
func (t *Telemetry) Observer() observe.Observer {
	t.observing.Store(true)
	return observe.Observer{
		Settled: t.settled, LeaseLost: t.leaseLost, Called: t.called,
		Published: t.logIgnored, Changed: t.logChanged, Claimed: t.logClaimed, Buried: t.logBuried,
	}
}

func (t *Telemetry) settled(e observe.Settled) {
	ctx := context.Background()
	was, ok := t.handlings.take(deliveryKey{e.Topic, e.Group, e.ID, e.Token})
	if ok {
		ctx = trace.ContextWithSpan(ctx, was.span)
		t.traceSettlement(ctx, was, e)
	}
	t.logSettled(ctx, e, was.creation)
}

func (t *Telemetry) traceSettlement(ctx context.Context, was handled, e observe.Settled) {
	now, start := time.Now(), was.start.Add(e.Took)
	if start.After(now) {
		start = now
	}
	operation := string(e.How)
	_, span := t.tracer.Start(ctx, spanName(operation, e.Topic),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(start),
		t.attributes(operation, e.Topic, e.Group), trace.WithAttributes(settlementAttributes(e, was.uuid)...))
	span.End(trace.WithTimestamp(now))
}

func (t *Telemetry) leaseLost(e observe.LeaseLost) {
	ctx := context.Background()
	was, ok := t.handlings.get(deliveryKey{e.Topic, e.Group, e.ID, e.Token})
	if ok {
		was.span.SetAttributes(keyLeaseLost.Bool(true))
		ctx = trace.ContextWithSpan(ctx, was.span)
	}
	t.logLeaseLost(ctx, e, was.creation)
}

func (t *Telemetry) called(e observe.Called) {
	if e.Script == claimScript || settles(e.Script) {
		t.meters.called(context.Background(), e.Took, e.Script, e.Topic, errorAttributes(e.Err, true))
	}
}
