package redisdelayotel

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

func (t *Telemetry) logs(ctx context.Context) bool { return t.logger.Enabled(ctx, slog.LevelDebug) }

// log writes a line with the ids of the span in ctx, if there is one.
func (t *Telemetry) log(ctx context.Context, text string, attrs ...slog.Attr) {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		attrs = append(attrs, slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	t.logger.LogAttrs(ctx, slog.LevelDebug, text, attrs...)
}

func (t *Telemetry) logSend(s *send, err error) {
	if !t.logs(s.ctx) {
		return
	}
	attrs := []slog.Attr{slog.String("topic", s.topic), slog.Int("messages", len(s.messages))}
	if len(s.messages) == 1 {
		attrs = append(attrs, slog.String("uuid", s.messages[0].UUID))
	}
	t.log(s.ctx, "Sent", withError(attrs, err)...)
}

// sentBy says which trace the message comes from: sent_trace_id is the trace_id of the line
// that tells of its sending.
func sentBy(attrs []slog.Attr, creation trace.SpanContext) []slog.Attr {
	if creation.IsValid() {
		attrs = append(attrs, slog.String("sent_trace_id", creation.TraceID().String()))
	}
	return attrs
}

func (t *Telemetry) logHandling(h *handling) {
	if !t.logs(h.ctx) {
		return
	}
	attrs := []slog.Attr{slog.String("topic", h.topic), slog.String("uuid", h.uuid)}
	if d := h.delivery; d.ID != "" {
		attrs = append(attrs, slog.String("consumer_group", d.Group), slog.String("id", d.ID),
			slog.Int("attempt", d.Attempt), slog.Time("due", d.DueAt), slog.Duration("late", d.Late()))
	}
	t.log(h.ctx, "Handling", sentBy(attrs, h.creation)...)
}

func (t *Telemetry) logHandled(h *handling, took time.Duration, err error) {
	if !t.logs(h.ctx) {
		return
	}
	attrs := []slog.Attr{slog.String("topic", h.topic), slog.String("uuid", h.uuid), slog.Duration("took", took)}
	t.log(h.ctx, "Handled", withError(sentBy(attrs, h.creation), err)...)
}

// logSettled tells of a settlement, in the context of its handling if that is known.
func (t *Telemetry) logSettled(ctx context.Context, e observe.Settled, creation trace.SpanContext) {
	if !t.logs(ctx) {
		return
	}
	attrs := append(at(e.Place), slog.String("id", e.ID), slog.String("how", string(e.How)))
	if e.RetryIn > 0 {
		attrs = append(attrs, slog.Duration("retry_in", e.RetryIn))
	}
	if e.Stale {
		attrs = append(attrs, slog.Bool("stale", true))
	}
	if makesDeadLetter(e) {
		attrs = append(attrs, slog.Bool("dead_letter", true))
	}
	t.log(ctx, "Settled", sentBy(attrs, creation)...)
}

func (t *Telemetry) logLeaseLost(ctx context.Context, e observe.LeaseLost, creation trace.SpanContext) {
	if t.logs(ctx) {
		attrs := append(at(e.Place), slog.String("id", e.ID), slog.Int("attempt", e.Attempt))
		t.log(ctx, "Lost the lease", sentBy(attrs, creation)...)
	}
}

func (t *Telemetry) logClaimed(e observe.Claimed) {
	if ctx := context.Background(); t.logs(ctx) {
		t.log(ctx, "Claimed", append(at(e.Place), slog.Any("ids", slices.Clone(e.IDs)))...)
	}
}

func (t *Telemetry) logBuried(e observe.Buried) {
	if ctx := context.Background(); t.logs(ctx) {
		t.log(ctx, "Buried", append(at(e.Place), slog.String("id", e.ID), slog.String("reason", e.Reason))...)
	}
}

// logIgnored tells of duplicates that a Publish call dropped. The "Sent" line cannot: the call returns nil.
func (t *Telemetry) logIgnored(e observe.Published) {
	if ctx := context.Background(); len(e.Ignored) > 0 && t.logs(ctx) {
		t.log(ctx, "Ignored duplicates", slog.String("topic", e.Topic), slog.Any("keys", slices.Clone(e.Ignored)))
	}
}

func (t *Telemetry) logChanged(e observe.Changed) {
	ctx := context.Background()
	if !t.logs(ctx) {
		return
	}
	attrs := []slog.Attr{slog.String("topic", e.Topic), slog.String("key", e.Key), slog.String("id", e.ID), slog.String("how", string(e.How))}
	t.log(ctx, "Changed", withError(attrs, e.Err)...)
}

// at has the names that the log of package redisdelay uses.
func at(place observe.Place) []slog.Attr {
	return []slog.Attr{
		slog.String("topic", place.Topic), slog.String("consumer_group", place.Group), slog.Int("partition", place.Partition),
	}
}

func withError(attrs []slog.Attr, err error) []slog.Attr {
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	return attrs
}
