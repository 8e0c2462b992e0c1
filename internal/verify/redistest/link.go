package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Link is a slow connection to a server: a proxy whose bandwidth in each direction is shared by all its connections.
type Link struct{ Addr string }

// NewLink returns a connection to an address with a bandwidth in bytes/s. The end of the test closes it.
func NewLink(t testing.TB, target string, bandwidth int) *Link {
	t.Helper()
	up, down := &pipe{bandwidth: bandwidth}, &pipe{bandwidth: bandwidth}
	return &Link{between(t, target, func(_ int, client, server net.Conn) (upward, downward func()) {
		return func() { up.carry(server, client) }, func() { down.carry(client, server) }
	})}
}

// pipe is one direction of a Link.
type pipe struct {
	bandwidth int // bytes/s

	mu   sync.Mutex
	free time.Time // guarded by mu; when all bytes so far have passed
}

// catchUp is how much unused time may be used later: on a busy machine, timers are late.
const catchUp = 50 * time.Millisecond

// carry copies from one end to the other until either is closed. Connections take turns with small pieces.
func (p *pipe) carry(to, from net.Conn) {
	piece := make([]byte, 2048)
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		if wait := p.enter(n); wait > time.Millisecond { // a timer is late by as much
			<-time.After(wait)
		}
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}

// enter returns how long some bytes take to pass, after all earlier bytes.
func (p *pipe) enter(bytes int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if idle := now.Add(-catchUp); p.free.Before(idle) {
		p.free = idle
	}
	p.free = p.free.Add(time.Duration(bytes) * time.Second / time.Duration(p.bandwidth))
	return p.free.Sub(now)
}
