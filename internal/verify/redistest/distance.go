package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Distant returns the address of a proxy that makes a server seem far away: each byte arrives half a round trip later.
// It limits no throughput.
func Distant(t testing.TB, addr string, roundTrip time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &distance{listener: listener, oneWay: roundTrip / 2}
	p.running.Go(func() { p.accept(addr) })
	t.Cleanup(p.close)
	return listener.Addr().String()
}

type distance struct {
	listener net.Listener
	oneWay   time.Duration
	running  sync.WaitGroup

	mu   sync.Mutex
	open []net.Conn // guarded by mu
}

func (p *distance) accept(addr string) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", addr)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, client, server)
		p.mu.Unlock()
		p.running.Go(func() { p.carry(client, server) })
		p.running.Go(func() { p.carry(server, client) })
	}
}

type parcel struct {
	due   time.Time
	bytes []byte
}

// carry passes on what one side sends until either side closes.
func (p *distance) carry(from, to net.Conn) {
	parcels := make(chan parcel, 1000)
	p.running.Go(func() {
		for next := range parcels {
			<-time.After(time.Until(next.due))
			_, _ = to.Write(next.bytes) // after an error, the reader below notices
		}
		_ = to.Close()
	})
	defer close(parcels)
	for {
		bytes := make([]byte, 32<<10)
		n, err := from.Read(bytes)
		if err != nil {
			return
		}
		parcels <- parcel{time.Now().Add(p.oneWay), bytes[:n]}
	}
}

func (p *distance) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}
