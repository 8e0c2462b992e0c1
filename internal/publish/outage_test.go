package publish

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// inPartition returns a message that goes to one of two partitions.
func inPartition(n int) []Message {
	key := "a"
	for queue.PartitionOf(key, 2) != n {
		key += "a"
	}
	return []Message{{PartitionKey: key}}
}

// loading fails in partition 0 until ready is closed.
func loading(ready <-chan struct{}) func(partition int) error {
	return func(partition int) error {
		select {
		case <-ready:
			return nil
		default:
		}
		if partition == 0 {
			return loadingError()
		}
		return nil
	}
}

func soon() time.Time { return time.Now().Add(15 * time.Second) }

func TestASlowObserverDoesNotBlockOtherPartitions(t *testing.T) {
	ready, reported, release := make(chan struct{}), make(chan struct{}, 100), make(chan struct{})
	f := &fakeTopic{partitions: 2, fail: loading(ready), observer: observe.Observer{Failed: func(observe.Failed) {
		reported <- struct{}{}
		<-release
	}}}
	p := f.publisher(t)
	published := make(chan error, 1)
	go func() { published <- p.Publish(context.Background(), far, "t", inPartition(0)) }()
	<-reported // and the observer does not return
	for range 3 {
		require.NoError(t, p.Publish(t.Context(), soon(), "t", inPartition(1)))
	}
	close(ready)
	close(release)
	require.NoError(t, <-published)
}

func TestAnObserverMayPublishToAnotherPartition(t *testing.T) {
	ready, errs := make(chan struct{}), make(chan error, 1)
	f := &fakeTopic{partitions: 2, fail: loading(ready)}
	var p *Publisher
	f.observer.Failed = func(observe.Failed) {
		select {
		case <-ready: // it has done so
		default:
			errs <- p.Publish(context.Background(), soon(), "t", inPartition(1))
			close(ready)
		}
	}
	p = f.publisher(t)
	require.NoError(t, p.Publish(t.Context(), far, "t", inPartition(0)))
	require.NoError(t, <-errs)
}

func TestRecoveryIsReportedAfterCallersReturn(t *testing.T) {
	for name, fails := range map[string]func(*fakeTopic){
		"a push": func(f *fakeTopic) { f.answers = []error{io.EOF} },
		"a query": func(f *fakeTopic) {
			f.raise = func(context.Context) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				if f.asked == 1 {
					return io.EOF
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			release, recoveries := make(chan struct{}), 0
			f := &fakeTopic{observer: observe.Observer{OutageEnded: func(observe.OutageEnded) {
				recoveries++
				<-release
			}}}
			fails(f)
			p := f.publisher(t)
			require.NoError(t, p.Publish(t.Context(), soon(), "t", one("a")))
			close(release)
			require.NoError(t, p.Close(t.Context()))
			assert.Equal(t, 1, recoveries, "and before Close returns")
		})
	}
}

func TestCloseEndsAnOpenOutage(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ended []observe.OutageEnded
	f := &fakeTopic{observer: observe.Observer{
		OutageBegan: func(observe.OutageBegan) { cancel() },
		OutageEnded: func(e observe.OutageEnded) { ended = append(ended, e) },
	}}
	f.fail = func(int) error { return io.EOF }
	p := f.publisher(t)
	require.Error(t, p.Publish(ctx, far, "t", one("a")))
	require.NoError(t, p.Close(t.Context()))
	require.Len(t, ended, 1)
	assert.True(t, ended[0].Stopped)
}
