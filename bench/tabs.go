package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// visitors are people with pages of a dashboard open.
type visitors struct {
	root string
	ctx  context.Context // ends all streams
	end  context.CancelFunc

	running sync.WaitGroup
	sent    atomic.Int64 // pages that streams have brought
	mu      sync.Mutex
	err     error // guarded by mu
}

// openTabs opens streams, and returns when each has brought its first page.
func openTabs(ctx context.Context, root string, n int) (*visitors, error) {
	v := &visitors{root: root}
	v.ctx, v.end = context.WithCancel(ctx)
	var opened sync.WaitGroup
	opened.Add(n)
	for i := range n {
		first := sync.OnceFunc(opened.Done)
		v.running.Go(func() { // ended by end, waited for by leave
			defer first()
			v.note(v.watch(livePages(i), first))
		})
	}
	opened.Wait()
	v.sent.Store(0)
	v.mu.Lock()
	defer v.mu.Unlock()
	return v, v.err
}

// watch reads a stream until its end, which is a fault if nobody has left.
func (v *visitors) watch(path string, first func()) error {
	body, err := v.get(path)
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // only read
	lines := bufio.NewReaderSize(body, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		switch {
		case v.ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the stream %s has ended: %w", path, err)
		case strings.HasPrefix(line, "event: trouble"):
			return fmt.Errorf("the stream %s has trouble", path)
		case strings.HasPrefix(line, "event: page"):
			v.sent.Add(1)
			first()
		}
	}
}

func (v *visitors) get(path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(v.ctx, http.MethodGet, v.root+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s: %s", path, answer.Status), answer.Body.Close())
	}
	return answer.Body, nil
}

// goBrowsing asks for a page after each pause.
func (v *visitors) goBrowsing(every time.Duration) {
	v.running.Go(func() { // ended by end, waited for by leave
		for n := 0; pause(v.ctx, every) == nil; n++ {
			v.note(v.load(clicked(n)))
		}
	})
}

// load reads a page to its end.
func (v *visitors) load(path string) error {
	body, err := v.get(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, body)
	return errors.Join(err, body.Close())
}

func (v *visitors) note(err error) {
	if v.ctx.Err() != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = errors.Join(v.err, err)
}

// looked is how often the dashboard has looked at Redis.
func (v *visitors) looked() (looks float64) {
	body, err := v.get("looks")
	if err == nil {
		_, err = fmt.Fscan(body, &looks)
		err = errors.Join(err, body.Close())
	}
	v.note(err)
	return looks
}

// leave closes all pages, and returns how many streams have brought.
func (v *visitors) leave() (sent float64, err error) {
	v.end()
	v.running.Wait()
	return float64(v.sent.Load()), v.err
}
