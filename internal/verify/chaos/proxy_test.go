package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fate is what a proxy does with the reply to a command.
type fate int

const (
	pass    fate = iota
	cut          // close the connection instead of replying
	swallow      // never reply; the client must time out
)

// proxy passes commands on to Redis and loses some of the replies.
type proxy struct {
	addr     string
	target   string
	decide   func(command []string) fate
	listener net.Listener
	conns    sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool // guarded by mu
	done bool              // guarded by mu
}

func startProxy(t *testing.T, target string, decide func(command []string) fate) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: listener.Addr().String(), target: target, decide: decide, listener: listener, open: map[net.Conn]bool{}}
	p.conns.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.track(client) || !p.track(server) {
			_ = client.Close()
			continue
		}
		fates := make(chan fate, 10_000)
		p.conns.Go(func() { p.forward(client, server, fates) })
		p.conns.Go(func() { p.reply(server, client, fates) })
	}
}

func (p *proxy) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = true
	return !p.done
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.done = true
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.conns.Wait()
}

func (p *proxy) end(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(p.open, conn)
	}
}

// forward passes commands on and decides the fate of their replies.
func (p *proxy) forward(client, server net.Conn, fates chan<- fate) {
	defer p.end(client, server)
	defer close(fates)
	reader := bufio.NewReader(client)
	for {
		var raw strings.Builder
		command, err := readValue(reader, &raw)
		if err != nil {
			return
		}
		if len(command) > 0 && !strings.HasSuffix(strings.ToLower(command[0]), "subscribe") {
			fates <- p.decide(command)
		}
		if _, err := io.WriteString(server, raw.String()); err != nil {
			return
		}
	}
}

// reply passes replies back according to their fates. Pushed messages have no fate.
func (p *proxy) reply(server, client net.Conn, fates <-chan fate) {
	defer p.end(client, server)
	reader := bufio.NewReader(server)
	for {
		var raw strings.Builder
		if _, err := readValue(reader, &raw); err != nil {
			return
		}
		what := pass
		if raw.String()[0] != '>' {
			what = <-fates
		}
		if what == cut {
			return
		}
		if what == swallow {
			_, _ = io.Copy(io.Discard, reader) // until the client gives up
			return
		}
		if _, err := io.WriteString(client, raw.String()); err != nil {
			return
		}
	}
}

var errProtocol = errors.New("not RESP")

// readValue reads one RESP value, keeps its bytes, and returns its strings.
func readValue(r *bufio.Reader, raw *strings.Builder) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	raw.WriteString(line)
	if len(line) < 3 {
		return nil, fmt.Errorf("%w: %q", errProtocol, line)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:])) // not a number in a simple string
	switch line[0] {
	case '$', '=':
		return readBulk(r, raw, n)
	case '*', '~', '>':
		return readMany(r, raw, n)
	case '%':
		return readMany(r, raw, 2*n)
	case '+', '-', ':', '_', '#', ',':
		return []string{strings.TrimSpace(line[1:])}, nil
	default:
		return nil, fmt.Errorf("%w: %q", errProtocol, line)
	}
}

func readBulk(r *bufio.Reader, raw *strings.Builder, n int) ([]string, error) {
	if n < 0 {
		return nil, nil
	}
	bytes := make([]byte, n+2)
	if _, err := io.ReadFull(r, bytes); err != nil {
		return nil, err
	}
	raw.Write(bytes)
	return []string{string(bytes[:n])}, nil
}

func readMany(r *bufio.Reader, raw *strings.Builder, n int) ([]string, error) {
	var values []string
	for range n {
		some, err := readValue(r, raw)
		if err != nil {
			return nil, err
		}
		values = append(values, some...)
	}
	return values, nil
}
