package redisdelaytest

import (
	"net"
	"sync"
	"time"
)

// roomy is a connection in memory with room for what is written, as one over a network has. A
// Write of a net.Pipe waits until the other end reads, so a client that sends much before it
// reads waits for a server that waits for it.
type roomy struct {
	net.Conn

	more  chan struct{} // signalled after each Write
	ended chan struct{} // closed by Close
	end   func()

	mu      sync.Mutex
	pending []byte // guarded by mu
}

func newRoomy(conn net.Conn) *roomy {
	r := &roomy{Conn: conn, more: make(chan struct{}, 1), ended: make(chan struct{})}
	r.end = sync.OnceFunc(func() { close(r.ended) })
	go r.carry() // until Close, or until the other end closes
	return r
}

// Write never waits.
func (r *roomy) Write(p []byte) (int, error) {
	select {
	case <-r.ended:
		return 0, net.ErrClosed
	default:
	}
	r.mu.Lock()
	r.pending = append(r.pending, p...)
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// carry brings what is written to the other end.
func (r *roomy) carry() {
	defer r.end()
	for {
		select {
		case <-r.more:
		case <-r.ended:
			return
		}
		r.mu.Lock()
		next := r.pending
		r.pending = nil
		r.mu.Unlock()
		if _, err := r.Conn.Write(next); err != nil {
			return
		}
	}
}

// Close ends the connection, and drops what has not arrived.
func (r *roomy) Close() error {
	r.end()
	return r.Conn.Close()
}

// SetDeadline sets that of Read. A Write needs none.
func (r *roomy) SetDeadline(t time.Time) error { return r.SetReadDeadline(t) }

// SetWriteDeadline does nothing.
func (*roomy) SetWriteDeadline(time.Time) error { return nil }
