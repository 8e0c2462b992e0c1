package relay

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
)

// recorder is a target that remembers its calls and fails as told.
type recorder struct {
	calls [][]string
	fail  func(call int) error
}

func (r *recorder) Publish(_ string, messages ...*message.Message) error {
	var call []string
	for _, msg := range messages {
		call = append(call, msg.UUID)
	}
	r.calls = append(r.calls, call)
	return r.fail(len(r.calls))
}

func (r *recorder) Close() error { return nil }

// routeTo returns a route, and a batch for it whose contexts end with lose.
func routeTo(ctx context.Context, target message.Publisher, size int) (rt *route, batch []*message.Message, lose []func()) {
	config := Config{Target: target}
	config.setDefaults()
	rt = newRoute(ctx, &Relay{config: config, target: target, logger: watermill.NopLogger{}}, "t")
	for i := range size {
		held, lost := context.WithCancel(context.WithoutCancel(ctx))
		msg := message.NewMessage(string(rune('a'+i)), nil)
		msg.SetContext(held)
		batch, lose = append(batch, msg), append(lose, lost)
	}
	return rt, batch, lose
}

var errRejected = errors.New("rejected")

// ends tells how each message was settled.
func ends(batch []*message.Message) (list []string) {
	for _, msg := range batch {
		select {
		case <-msg.Acked():
			list = append(list, "ack")
		case <-msg.Nacked():
			list = append(list, "nack")
		default:
			list = append(list, "none")
		}
	}
	return list
}

func TestNoCallBeginsAfterTheEndOfRun(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	target := &recorder{}
	rt, batch, _ := routeTo(ctx, target, 4)
	target.fail = func(call int) error {
		switch call {
		case 1:
			return errRejected
		default:
			end()
			return nil
		}
	}
	rt.handle(batch)
	assert.Equal(t, [][]string{{"a", "b", "c", "d"}, {"a"}}, target.calls)
	assert.Equal(t, []string{"ack", "nack", "nack", "nack"}, ends(batch))

	_, batch, _ = routeTo(ctx, target, 2)
	rt.handle(batch)
	assert.Len(t, target.calls, 2, "not for another batch either")
	assert.Equal(t, []string{"nack", "nack"}, ends(batch))
	assert.False(t, rt.outages.Fails(publishing, rt.place()), "which is no outage")
}

func TestAMessageWithALostLeaseIsNotPublished(t *testing.T) {
	target := &recorder{}
	rt, batch, lose := routeTo(t.Context(), target, 4)
	lose[3]()
	target.fail = func(call int) error {
		switch call {
		case 1:
			return errRejected
		default:
			lose[1]()
			return nil
		}
	}
	rt.handle(batch)
	assert.Equal(t, [][]string{{"a", "b", "c"}, {"a"}, {"c"}}, target.calls)
	assert.Equal(t, []string{"ack", "nack", "ack", "nack"}, ends(batch))

	_, batch, lose = routeTo(t.Context(), target, 1)
	lose[0]()
	rt.handle(batch)
	assert.Len(t, target.calls, 3)
	assert.False(t, rt.outages.Fails(publishing, rt.place()), "which is no outage")
}

// TestAFailedAttemptCountsIfAnotherMessageSucceededSince the attempt before it.
func TestAFailedAttemptCountsIfAnotherMessageSucceededSince(t *testing.T) {
	r := failures{max: 1, counts: map[string]failure{}}
	assert.False(t, r.add("bad"), "the target may be down since")
	assert.False(t, r.add("bad"))
	r.accepted("good")
	assert.False(t, r.add("other"))
	assert.True(t, r.add("bad"))
	assert.False(t, r.add("bad"), "it is counted anew")
}
