package redistest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Link is a slow connection to a server: a proxy that passes some bytes a second in each direction, for all its connections
// together.
type Link struct {
	Addr string

	// immutable
	target   string
	listener net.Listener
	ctx      context.Context // of the proxy
	conns    sync.WaitGroup
	up, down *pipe
}

// pipe is one direction of a Link.
type pipe struct {
	mu        sync.Mutex
	bandwidth int       // bytes/s
	free      time.Time // guarded by mu; when all that has entered has passed
}

// catchUp is how much time that passed unused counts: on a busy machine, timers are late.
const catchUp = 50 * time.Millisecond

// NewLink returns a connection to an address with a bandwidth in bytes/s. The end of the test closes it.
func NewLink(t testing.TB, target string, bandwidth int) *Link {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{
		Addr: listener.Addr().String(), target: target, listener: listener, ctx: ctx,
		up: &pipe{bandwidth: bandwidth}, down: &pipe{bandwidth: bandwidth},
	}
	l.conns.Go(l.accept)
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		l.conns.Wait()
	})
	return l
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(l.ctx, "tcp", l.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		end := func() { _, _ = client.Close(), server.Close() }
		stop := context.AfterFunc(l.ctx, end)
		l.conns.Go(func() { l.pass(server, client, l.up, end) })
		l.conns.Go(func() {
			defer stop()
			l.pass(client, server, l.down, end)
		})
	}
}

// pass copies from one end to the other until either is closed. Connections take turns with small pieces.
func (l *Link) pass(to, from net.Conn, through *pipe, end func()) {
	defer end()
	piece := make([]byte, 2048)
	for {
		n, err := from.Read(piece)
		if err != nil || !through.pass(l.ctx, n) {
			return
		}
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}

// pass waits until some bytes have passed; false if ctx ends before.
func (p *pipe) pass(ctx context.Context, bytes int) bool {
	p.mu.Lock()
	now := time.Now()
	if idle := now.Add(-catchUp); p.free.Before(idle) {
		p.free = idle
	}
	p.free = p.free.Add(time.Duration(bytes) * time.Second / time.Duration(p.bandwidth))
	wait := p.free.Sub(now)
	p.mu.Unlock()
	if wait > time.Millisecond { // a timer is late by as much
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
