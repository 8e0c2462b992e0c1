package script

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestPromptlyReturnsWhenTheContextEnds(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	s := NewClient(client, "p", observe.Observer{})
	require.NoError(t, s.WaitIdle(t.Context()), "no call is under way")

	answer := make(chan int)
	ask := func(ctx context.Context) (int, error) {
		return RunAbandonable(ctx, s, func(context.Context) (int, error) { return <-answer, nil })
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range maxCalls { // the last one gets no slot, or is abandoned like the others
		_, err := ask(over)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errNoConnection)
	}
	require.ErrorIs(t, s.WaitIdle(over), context.Canceled, "they go on")

	close(answer)
	require.NoError(t, s.WaitIdle(t.Context()))
	n, err := RunAbandonable(t.Context(), s, func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	assert.Equal(t, 7, n)
}

func TestTheErrorOfAContextIsNotItsCause(t *testing.T) {
	end := func(ctx context.Context, cause error) error {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(cause)
		return EndOf(ctx)
	}
	over, cancel := context.WithTimeoutCause(t.Context(), 0, assert.AnError)
	defer cancel()
	require.Equal(t, context.Canceled, end(t.Context(), nil))
	require.Equal(t, context.DeadlineExceeded, end(t.Context(), context.DeadlineExceeded))
	for want, err := range map[error]error{
		context.Canceled:         end(t.Context(), assert.AnError),
		context.DeadlineExceeded: EndOf(over),
	} {
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, assert.AnError)
		assert.ErrorContains(t, err, assert.AnError.Error())
	}
}
