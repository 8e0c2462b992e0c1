package languages

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/chaos"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// story is what programs have told, and what is needed of it before they are judged.
type story struct {
	chaos.History
	news chan struct{} // has an element if something was published since the last one was taken

	mu      sync.Mutex
	last    chaos.Event     // guarded by mu; of the publisher
	handled map[string]bool // guarded by mu; by UUID
}

func newStory() *story { return &story{news: make(chan struct{}, 1), handled: map[string]bool{}} }

func (s *story) add(e chaos.Event) {
	s.Add(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case chaos.Published:
		s.last = e
		select {
		case s.news <- struct{}{}:
		default:
		}
	case chaos.Handled:
		s.handled[e.UUID] = true
	}
}

// place is the number with which a publisher goes on, and what was told last.
func (s *story) place() (first int, last chaos.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.UUID == "" {
		return 0, s.last
	}
	first, _ = strconv.Atoi(s.last.UUID) // it was one when the publisher got it
	if s.last.Outcome == chaos.OK {
		first++
	}
	return first, s.last
}

func (s *story) countHandled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.handled)
}

// reached waits until a number is published and then for one more, unless nothing is published for long.
func (s *story) reached(number, count int) {
	for first, again := 0, false; first < count; first, _ = s.place() {
		if again && first >= number {
			return
		}
		again = true
		select { // the old one
		case <-s.news:
		default:
		}
		select {
		case <-s.news:
		case <-time.After(healing):
			return
		}
	}
}

// crowd are processes that are killed at random. The first one publishes.
type crowd struct {
	t        *testing.T
	server   *redistest.Server
	story    *story
	programs []func() *exec.Cmd // of each process; a function makes the next one
	members  []*member
}

// member is a process of a crowd.
type member struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended, and the story has what it has told
}

func (c *crowd) start(i int) {
	c.t.Helper()
	cmd := c.programs[i]()
	cmd.Env = append(cmd.Environ(), "REDIS_URL=redis://"+c.server.Addr)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	m := &member{cmd, make(chan struct{})}
	go func() { // ends with the process, which the test ends
		defer close(m.done)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var e chaos.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil { // the last line may be cut
				c.story.add(e)
			}
		}
		_ = cmd.Wait() // end looks at how it has ended
	}()
	c.members[i] = m
}

// end kills a process, which must not have failed before.
func (c *crowd) end(i int) {
	m := c.members[i]
	_ = m.cmd.Process.Kill() // a publisher may be done
	<-m.done
	assert.LessOrEqual(c.t, m.cmd.ProcessState.ExitCode(), 0, "process %d has failed", i)
}

func (c *crowd) all() (members []int) {
	for i := range c.programs {
		members = append(members, i)
	}
	return members
}

// live starts all, and kills one of them so many times, while messages are published; each fifth time all of them. Before others
// take their place, and while they start, another fault may happen.
func (c *crowd) live(l load, fault func(death int)) {
	c.t.Helper()
	c.members = make([]*member, len(c.programs))
	for i := range c.programs {
		c.start(i)
		c.t.Cleanup(func() { c.end(i) })
	}
	for death := range l.deaths {
		<-time.After(100*time.Millisecond + rand.N(300*time.Millisecond))
		c.story.reached(death*l.count/l.deaths, l.count)
		<-time.After(rand.N(10 * time.Millisecond)) // in the middle of a call
		victims := []int{rand.IntN(len(c.programs))}
		if death%5 == 4 {
			victims = c.all()
		}
		for _, i := range victims {
			c.end(i)
		}
		fault(death)
		for _, i := range victims {
			c.start(i)
		}
	}
}

// judge waits until each of so many messages was handled, as long as more of them are, and then checks what has happened.
func (c *crowd) judge(count int) {
	c.t.Helper()
	handled := 0
	for handled < count {
		more := func() bool { return c.story.countHandled() > handled }
		if !assert.Eventually(c.t, more, healing, 20*time.Millisecond, "%d of %d were handled", handled, count) {
			break
		}
		handled = c.story.countHandled()
	}
	report := c.story.Check([]string{readers}, nil, nil)
	c.t.Log(report)
	require.Empty(c.t, report.Failures())
	require.Equal(c.t, map[chaos.Outcome]int{chaos.OK: count}, report.Published)
}
