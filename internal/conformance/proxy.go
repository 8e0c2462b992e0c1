package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
)

// proxy stands between a program and Redis. It knows which calls store messages, loses replies to them, and counts
// arguments.
type proxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup
	cancel   context.CancelFunc
	ctx      context.Context //nolint:containedctx // it ends the connections

	mu     sync.Mutex
	lose   int // guarded by mu; how many replies to stores are still to be lost
	lost   int // guarded by mu; how many were
	widest int // guarded by mu; arguments of the widest call
}

func newProxy(target string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{target: target, listener: listener}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// close ends all connections and waits for them.
func (p *proxy) close() error {
	p.cancel()
	err := p.listener.Close()
	p.running.Wait()
	return err
}

// loseReplies makes the proxy lose the replies to the next calls that store: Redis has run them.
func (p *proxy) loseReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.lost = n, 0
}

func (p *proxy) lostReplies() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *proxy) widestCall() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.widest
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve passes on what a connection carries until either side ends it.
func (p *proxy) serve(client net.Conn) {
	defer client.Close() //nolint:errcheck // nobody needs it any more
	server, err := new(net.Dialer).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close() //nolint:errcheck // nobody needs it any more
	stop := context.AfterFunc(p.ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	c := &connection{proxy: p}
	p.running.Go(func() {
		c.replies(client, server)
		_, _ = client.Close(), server.Close()
	})
	c.requests(client, server)
}

// connection is what the two directions of a connection have in common.
type connection struct {
	proxy   *proxy
	waiting bool // guarded by proxy.mu; for the reply to a store, which is to be lost
}

// requests passes on requests, one at a time.
func (c *connection) requests(client io.Reader, server io.Writer) {
	in := bufio.NewReader(client)
	for {
		raw, args, err := readRequest(in)
		if err != nil {
			return
		}
		c.note(args)
		if _, err := server.Write(raw); err != nil {
			return
		}
	}
}

func (c *connection) note(args []string) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	p.widest = max(p.widest, len(args))
	if !stores(args) {
		return
	}
	c.waiting = p.lost < p.lose
}

// replies passes on replies. That to a store is lost if it is no error, and the connection with it.
func (c *connection) replies(client io.Writer, server io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if n > 0 && c.loses(buffer[:n]) {
			return
		}
		if n > 0 {
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *connection) loses(reply []byte) bool {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	loses := c.waiting && reply[0] != '-' // after NOSCRIPT, say, nothing has run
	c.waiting = false
	if loses {
		c.proxy.lost++
	}
	return loses
}

// stores tells whether a request is a call of push or put: of a script with a partition's scheduled, messages and
// publishers, in whatever way it is called.
func stores(args []string) bool {
	if len(args) < 6 || !strings.HasPrefix(strings.ToUpper(args[0]), "EVAL") && strings.ToUpper(args[0]) != "FCALL" {
		return false
	}
	return strings.HasSuffix(args[3], "}:scheduled") && strings.HasSuffix(args[4], "}:messages") && strings.HasSuffix(args[5], "}:publishers")
}

var errRequest = errors.New("no request of the Redis protocol")

// readRequest reads an array of bulk strings, and returns it also as it is.
func readRequest(in *bufio.Reader) (raw []byte, args []string, err error) {
	var b bytes.Buffer
	count, err := readLength(in, &b, '*')
	if err != nil {
		return nil, nil, err
	}
	for range count {
		length, err := readLength(in, &b, '$')
		if err != nil {
			return nil, nil, err
		}
		if length > 512<<20 {
			return nil, nil, errRequest
		}
		text := make([]byte, length+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, nil, err
		}
		b.Write(text)
		args = append(args, string(text[:length]))
	}
	return b.Bytes(), args, nil
}

func readLength(in *bufio.Reader, raw *bytes.Buffer, mark byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	raw.WriteString(line)
	if line[0] != mark {
		return 0, fmt.Errorf("%w: %q", errRequest, line)
	}
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %q", errRequest, line)
	}
	return n, nil
}
