package publish

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestCancelAndRescheduleDoNotRetryOrAddPartitions(t *testing.T) {
	f := &fakeTopic{key: "k"}
	p := f.publisher(t)
	require.NoError(t, errOf(p.Reschedule(t.Context(), "t", "k", time.Hour)))
	require.NoError(t, errOf(p.Cancel(t.Context(), "t", "k")))
	require.ErrorIs(t, errOf(p.Cancel(t.Context(), "t", "k")), queue.ErrNotFound)
	f.answers = []error{io.EOF}
	require.ErrorIs(t, errOf(p.Cancel(t.Context(), "t", "k")), io.EOF)
	assert.Equal(t, 3, f.sought)
	assert.Zero(t, f.asked, "the number of partitions is not raised")
	require.NoError(t, p.Close(t.Context()))
	require.ErrorIs(t, errOf(p.Cancel(t.Context(), "t", "k")), ErrClosed)
}

// TestHangingCancelsDoNotBlockOtherTopics: the master of their topic does not answer, but the masters of other topics do.
func TestHangingCancelsDoNotBlockOtherTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging, hung := true, make(chan error)
		f := &fakeTopic{key: "k"}
		f.cancel = func(ctx context.Context) error {
			if hanging {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}
		p := f.publisher(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 * maxBackground {
			go func() { hung <- errOf(p.Cancel(ctx, "hung", "k")) }()
		}
		synctest.Wait()
		hanging = false // which those that hang do not learn
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, errOf(p.Cancel(soon, "other", "k")))
		require.NoError(t, p.Publish(soon, far, "third", one("a")))
		for range 2 * maxBackground {
			require.ErrorIs(t, <-hung, context.DeadlineExceeded)
		}
	})
}

func TestCloseWaitsForACancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{key: "k", cancel: func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		p := f.publisher(t)
		cancelled := make(chan error, 1)
		go func() { cancelled <- errOf(p.Cancel(t.Context(), "t", "k")) }()
		synctest.Wait()
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, <-cancelled)
	})
}

func TestAnObserverMayCloseThePublisherDuringACancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{key: "k"}
		var p *Publisher
		f.observer.Changed = func(observe.Changed) { require.NoError(t, p.Close(t.Context())) }
		p = f.publisher(t)
		require.NoError(t, errOf(p.Cancel(t.Context(), "t", "k")))
	})
}

type manyErrors []error

func (manyErrors) Error() string { return "many" }

func TestCancelSupportsUncomparableContextCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{cancel: func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		p := f.publisher(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(manyErrors{errSilent}) })
		_, err := p.Cancel(ctx, "t", "k")
		var many manyErrors
		require.ErrorAs(t, err, &many)
	})
}

func TestTheObserverReceivesTheOutcomeOfEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var published []observe.Published
		var changed []observe.Changed
		f := &fakeTopic{latency: time.Second, key: "k", observer: observe.Observer{
			Published: func(p observe.Published) { published = append(published, p) },
			Changed:   func(c observe.Changed) { changed = append(changed, c) },
		}}
		f.answers = []error{nil, errRefused}
		p := f.publisher(t)
		require.NoError(t, p.Publish(t.Context(), far, "t", []Message{{Name: "a"}, {Name: "b"}}))
		refused := p.Publish(t.Context(), far, "t", one("c"))
		require.ErrorIs(t, refused, errRefused)
		assert.Equal(t, []observe.Published{
			{Topic: "t", Messages: 2, Took: time.Second},
			{Topic: "t", Messages: 1, Took: time.Second, Err: refused},
		}, published)
		status, err := p.Reschedule(t.Context(), "t", "k", time.Hour)
		require.NoError(t, err)
		assert.Equal(t, queue.Status{ID: "id of k"}, status)
		missing := errOf(p.Cancel(t.Context(), "t", "other"))
		require.ErrorIs(t, missing, queue.ErrNotFound)
		assert.Equal(t, []observe.Changed{
			{Topic: "t", Key: "k", ID: "id of k", Change: observe.Rescheduled},
			{Topic: "t", Key: "other", Change: observe.Cancelled, Err: missing},
		}, changed)
		require.NoError(t, p.Publish(t.Context(), far, "t", nil))
		require.NoError(t, p.Close(t.Context()))
		require.ErrorIs(t, p.Publish(t.Context(), far, "t", one("d")), ErrClosed)
		require.ErrorIs(t, errOf(p.Cancel(t.Context(), "t", "k")), ErrClosed)
		assert.Len(t, published, 2, "neither nothing to publish nor what comes after Close is told")
		assert.Len(t, changed, 2)
	})
}
