package outage

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	a = observe.Place{Topic: "a"}
	b = observe.Place{Topic: "b", Partition: 1}
)

// notes are the outages that were reported to an observer, as "began a" and "ended a".
type notes struct {
	mu       sync.Mutex
	attempts int
	events   []string
	others   []int
	after    time.Duration
	err      error
}

func (n *notes) observer() observe.Observer {
	return observe.Observer{
		Failed: func(observe.Failed) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.attempts++
		},
		OutageBegan: func(e observe.OutageBegan) {
			n.add("began "+e.Topic, e.Others)
			n.err = e.Err
		},
		OutageEnded: func(e observe.OutageEnded) {
			how := "ended "
			if e.Stopped {
				how = "stopped "
			}
			n.add(how+e.Topic, e.Others)
			n.after = e.After
		},
	}
}

func (n *notes) add(text string, others int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events, n.others = append(n.events, text), append(n.others, others)
}

func TestAnOutageIsReportedOnceAtItsStartAndOnceAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		s := New(n.observer(), 0)
		assert.False(t, s.Worked(observe.Publishing, a))
		for _, err := range []error{io.EOF, errors.New("later")} {
			s.Failed(observe.Publishing, a, err)
			s.Failed(observe.Publishing, b, io.EOF)
		}
		assert.Equal(t, io.EOF, n.err)
		assert.True(t, s.Fails(observe.Publishing, a))
		<-time.After(time.Second)
		assert.False(t, s.Worked(observe.Claiming, a), "another activity")
		assert.True(t, s.Worked(observe.Publishing, a))
		assert.False(t, s.Worked(observe.Publishing, a))
		assert.False(t, s.Fails(observe.Publishing, a))
		assert.True(t, s.Worked(observe.Publishing, b))
		s.Failed(observe.Publishing, a, io.EOF)
		<-time.After(time.Minute)
		s.Worked(observe.Publishing, a)
		assert.Equal(t, []string{"began a", "began b", "ended a", "ended b", "began a", "ended a"}, n.events)
		assert.Equal(t, []int{0, 1, 1, 0, 0, 0}, n.others)
		assert.Equal(t, time.Minute, n.after)
		assert.Equal(t, 5, n.attempts)
		assert.Zero(t, s.open.Load())
	})
}

func TestAnOutageEndsWithoutAttemptsIfOtherPlacesWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, lasting := &notes{}, &notes{}
		s, other := New(n.observer(), time.Minute), New(lasting.observer(), 0)
		for _, s := range []*State{s, other} {
			s.Failed(observe.Publishing, a, io.EOF)
			s.Worked(observe.Publishing, b)
		}
		<-time.After(time.Minute + 1)
		s.Worked(observe.ExpiringGroups, b)
		assert.Equal(t, []string{"began a"}, n.events)
		s.Worked(observe.Publishing, b)
		other.Worked(observe.Publishing, b)
		assert.Equal(t, []string{"began a", "ended a"}, n.events)
		assert.Equal(t, []string{"began a"}, lasting.events)
	})
}

func TestStoppedActivitiesReportTheirOutagesAsStopped(t *testing.T) {
	n := &notes{}
	s := New(n.observer(), 0)
	s.Failed(observe.Extending, a, io.EOF)
	s.Stopped(observe.Extending, b)
	s.Stopped(observe.Extending, a)
	s.Failed(observe.Claiming, a, io.EOF)
	s.Close()
	s.Failed(observe.Claiming, a, io.EOF)
	assert.False(t, s.Worked(observe.Claiming, a))
	assert.Equal(t, []string{"began a", "stopped a", "began a", "stopped a"}, n.events)
	assert.Equal(t, 3, n.attempts, "attempts are reported all the same")
}

// TestASlowObserverReceivesTheOutagesOfAPlaceInOrder although different goroutines report them.
func TestASlowObserverReceivesTheOutagesOfAPlaceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, release := &notes{}, make(chan struct{})
		o := n.observer()
		began := o.OutageBegan
		o.OutageBegan = func(e observe.OutageBegan) {
			if e.Topic == "a" {
				<-release
			}
			began(e)
		}
		s := New(o, 0)
		go s.Failed(observe.Publishing, a, io.EOF)
		synctest.Wait()
		assert.True(t, s.Worked(observe.Publishing, a)) // and is not held up
		s.Failed(observe.Publishing, b, io.EOF)
		s.Worked(observe.Publishing, b)
		assert.Equal(t, []string{"began b", "ended b"}, n.events)
		close(release)
		synctest.Wait()
		assert.Equal(t, []string{"began b", "ended b", "began a", "ended a"}, n.events)
		assert.Zero(t, s.open.Load())
	})
}

func TestAnObserverThatPanicsHoldsNoLock(t *testing.T) {
	n := &notes{}
	o := n.observer()
	began := o.OutageBegan
	o.OutageBegan = func(e observe.OutageBegan) {
		if e.Topic == "a" {
			panic(io.EOF)
		}
		began(e)
	}
	s := New(o, 0)
	assert.PanicsWithError(t, io.EOF.Error(), func() { s.Failed(observe.Publishing, a, io.EOF) })
	s.Failed(observe.Publishing, b, io.EOF)
	assert.Equal(t, []string{"began b"}, n.events)
}

func TestTheNumberOfOutagesIsBounded(t *testing.T) {
	n := &notes{}
	s := New(n.observer(), 0)
	for topic := range 2 * maxOutages {
		s.Failed(observe.Publishing, observe.Place{Topic: fmt.Sprint(topic)}, io.EOF)
	}
	assert.Len(t, s.outages, maxOutages)
	assert.Len(t, n.events, maxOutages)
	assert.Equal(t, 2*maxOutages, n.attempts)
}
