package whole

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var errRefused = errors.New("connection refused")

// network joins processes and Redis.
type network struct {
	dial  func() (net.Conn, error)
	trip  time.Duration // one way
	trace bool          // print each request

	mu          sync.Mutex
	hangs       time.Time     // guarded by mu; until when Redis hangs
	downUntil   time.Time     // guarded by mu; Redis is unreachable until then
	connections []*connection // guarded by mu
	sent        int           // guarded by mu; requests that were sent, but heartbeats
	bytes       int           // guarded by mu
	beats       int           // guarded by mu; heartbeats of processes

	unknown map[string]bool // guarded by mu; processes one of whose scripts Redis did not know, so that it was sent twice
}

// process is a program, or a part of one, with a client of its own.
type process struct {
	name   string
	net    *network
	client *redis.Client

	beside bool // no outage concerns it; set before its first connection

	mu    sync.Mutex
	rng   *rand.Rand // guarded by mu
	dead  bool       // guarded by mu
	lossy float64    // guarded by mu; the share of requests and of replies that are lost
}

func (n *network) process(name string, rng *rand.Rand) *process {
	p := &process{name: name, net: n, rng: rng}
	p.client = redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", Dialer: p.dial,
		PoolSize: 1000, // a client that waits for a turn uses timers of other bubbles
	})
	return p
}

// gone reports whether the process has died.
func (p *process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// die ends the process as Redis sees it: its goroutines go on, but reach nobody.
func (p *process) die() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.cut(func(*connection) bool { return true })
}

func (p *process) setLossy(share float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lossy = share
}

// loses draws whether a request or a reply is lost, and whether the connection ends at once or
// goes silent.
func (p *process) loses() (lost, silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lossy == 0 || p.rng.Float64() >= p.lossy {
		return false, false
	}
	return true, p.rng.Float64() < 0.3
}

// cut closes the connections that are chosen.
func (p *process) cut(which func(*connection) bool) {
	for _, l := range p.net.all() {
		if l.process == p && which(l) {
			l.close()
		}
	}
}

func (n *network) all() []*connection {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*connection(nil), n.connections...)
}

func (n *network) hang(until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hangs = until
}

// leave ends all connections, and refuses new ones until a time.
func (n *network) leave(until time.Time) {
	n.mu.Lock()
	n.downUntil = until
	n.mu.Unlock()
	for _, l := range n.all() {
		if !l.process.beside {
			l.close()
		}
	}
}

func (n *network) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Now().Before(n.downUntil)
}

// count counts a request.
func (n *network) count(process string, request []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if bytes.Contains(request, []byte("\npublish\r")) {
		n.beats++
		return
	}
	if n.sent++; !bytes.Contains(request, []byte("\neval\r")) { // which sends a script the first time
		n.bytes += len(request)
	} else if n.unknown != nil {
		n.unknown[process] = true
	}
	if n.trace {
		fmt.Printf("%s  %s: %d bytes, %.120q\n", time.Now().Format("15:04:05.000"), process, len(request), request)
	}
}

func (n *network) counted() (requests, bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent, n.bytes
}

func (n *network) heartbeats() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.beats
}

// sentTwice tells whether a process has sent a call twice, since Redis did not know its script.
func (n *network) sentTwice(process string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unknown[process]
}

func (n *network) hangsUntil() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hangs
}

func (n *network) remove(l *connection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, other := range n.connections {
		if other == l {
			n.connections = append(n.connections[:i:i], n.connections[i+1:]...)
			return
		}
	}
}

// connection is a TCP connection of a process to a server.
type connection struct {
	process     *process
	far, server net.Conn // the far end of the client's pipe, and Redis

	mu      sync.Mutex
	works   bool // guarded by mu; the handshake is over
	listens bool // guarded by mu; it carries notifications
	silent  bool // guarded by mu; nothing arrives any more
}

func (p *process) dial(context.Context, string, string) (net.Conn, error) {
	if p.gone() || !p.beside && p.net.isDown() {
		return nil, errRefused
	}
	server, err := p.net.dial()
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	l := &connection{process: p, far: far, server: server}
	p.net.mu.Lock()
	p.net.connections = append(p.net.connections, l)
	p.net.mu.Unlock()
	go l.carry(far, server, l.request)
	go l.carry(server, far, l.reply)
	return near, nil
}

func (l *connection) close() {
	_ = l.far.Close()
	_ = l.server.Close()
	l.process.net.remove(l)
}

func (l *connection) carriesNotifications() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listens
}

// request looks at what the client sends. It returns how long that takes, or that it is lost.
func (l *connection) request(chunk []byte) (trip time.Duration, lost bool) {
	l.mu.Lock()
	hello := !l.works && (bytes.Contains(chunk, []byte("\nhello\r")) || bytes.Contains(chunk, []byte("\nclient\r")))
	l.works = !hello
	l.listens = l.listens || bytes.Contains(chunk, []byte("\nsubscribe\r"))
	l.mu.Unlock()
	if hello {
		return 0, false
	}
	l.process.net.count(l.process.name, chunk)
	return l.process.net.trip, l.loses()
}

func (l *connection) reply(chunk []byte) (trip time.Duration, lost bool) {
	if bytes.HasPrefix(chunk, []byte("-")) && !bytes.HasPrefix(chunk, []byte("-NOSCRIPT")) && l.process.net.trace {
		fmt.Printf("%s  to %s: %.300q\n", time.Now().Format("15:04:05.000"), l.process.name, chunk)
	}
	l.mu.Lock()
	works := l.works
	l.mu.Unlock()
	if !works {
		return 0, false
	}
	return l.process.net.trip, l.loses()
}

func (l *connection) loses() bool {
	lost, silent := l.process.loses()
	l.mu.Lock()
	l.silent = l.silent || lost && silent
	silent = l.silent
	l.mu.Unlock()
	if lost && !silent {
		l.close()
	}
	return lost || silent
}

// parcel is a part of a stream on its way.
type parcel struct {
	data    []byte // nil: the stream has ended
	arrives time.Time
}

// carry brings what one end sends to the other. It always reads on, so nobody waits in a Write
// while holding a mutex.
func (l *connection) carry(from, to net.Conn, inspect func(chunk []byte) (time.Duration, bool)) {
	way := newWay()
	go l.deliver(way, to)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if trip, lost := inspect(buffer[:n]); !lost {
				way.put(parcel{bytes.Clone(buffer[:n]), time.Now().Add(trip)})
			}
		}
		if err != nil {
			way.put(parcel{arrives: time.Now()})
			return
		}
	}
}

// deliver writes what is under way, each parcel at its time, and not while Redis hangs.
func (l *connection) deliver(way *way, to net.Conn) {
	defer l.close()
	for {
		next := way.take()
		wait(time.Until(next.arrives))
		if next.data == nil {
			return
		}
		for hangs := time.Until(l.process.net.hangsUntil()); hangs > 0; hangs = time.Until(l.process.net.hangsUntil()) {
			wait(hangs)
		}
		if _, err := to.Write(next.data); err != nil {
			return
		}
	}
}

// wait lets virtual time pass.
func wait(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// way holds what is under way. It has no bound: nobody waits to put something on it.
type way struct {
	mu      sync.Mutex
	parcels []parcel      // guarded by mu
	more    chan struct{} // signalled after put
}

func newWay() *way { return &way{more: make(chan struct{}, 1)} }

func (w *way) put(p parcel) {
	w.mu.Lock()
	w.parcels = append(w.parcels, p)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *way) take() parcel {
	for {
		w.mu.Lock()
		if len(w.parcels) > 0 {
			next := w.parcels[0]
			w.parcels = w.parcels[1:]
			w.mu.Unlock()
			return next
		}
		w.mu.Unlock()
		<-w.more
	}
}
