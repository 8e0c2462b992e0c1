package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// proxy stands between a program and Redis. It knows which calls store messages, loses replies to them, looks at
// what else they say, and counts arguments.
type proxy struct {
	target   string
	database int
	listener net.Listener
	running  sync.WaitGroup
	cancel   context.CancelFunc
	ctx      context.Context //nolint:containedctx // it ends the connections

	mu     sync.Mutex
	lose   int      // guarded by mu; how many replies to stores are still to be lost
	lost   int      // guarded by mu; how many were
	silent bool     // guarded by mu; the connection stays open when a reply is lost
	unsure *store   // guarded by mu; the store whose reply was lost last, until the next one
	faults []string // guarded by mu; what is wrong with stores
	widest int      // guarded by mu; arguments of the widest call
}

func newProxy(target string, database int) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{target: target, database: database, listener: listener}
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

// loseReplies makes the proxy lose the replies to the next calls that store: Redis has run them. Their connections end.
func (p *proxy) loseReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.lost, p.silent, p.unsure = n, 0, false, nil
}

// fallSilent makes the proxy lose the reply to the next call that stores, and all that follow on its connection, which stays open.
func (p *proxy) fallSilent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.lost, p.silent, p.unsure = 1, 0, true, nil
}

// takeFaults returns what was wrong with stores since the last time.
func (p *proxy) takeFaults() (faults []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults, p.faults = p.faults, nil
	return faults
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
	waiting *store // guarded by proxy.mu; the reply to which is to be lost
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
	s := storeOf(args)
	if s == nil {
		return
	}
	p.judge(s)
	if c.waiting = nil; p.lost < p.lose {
		c.waiting = s
	}
}

// judge notes what is wrong with a store, each fault once. The caller holds mu.
func (p *proxy) judge(s *store) {
	if want := fmt.Sprintf("%s:wake:%d", s.tag(), p.database); s.channel() != want {
		p.fault("a call that stores names the channel %q, want %q", s.channel(), want)
	}
	if lost := p.unsure; lost != nil && !s.repeats(lost) {
		p.fault("the store after a lost reply is not the same: it is number %s of %s, after number %s of %s, or has other messages",
			s.args[1], s.args[0], lost.args[1], lost.args[0])
	}
	p.unsure = nil
}

func (p *proxy) fault(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(p.faults, text) {
		p.faults = append(p.faults, text)
	}
}

// replies passes on replies. That to a store is lost if it is no error, and the connection with it, or all that follows on it.
func (c *connection) replies(client io.Writer, server io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if n > 0 && c.loses(buffer[:n]) {
			c.silence(server)
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
	loses := c.waiting != nil && reply[0] != '-' // after NOSCRIPT, say, nothing has run
	if loses {
		c.proxy.lost++
		c.proxy.unsure = c.waiting
	}
	c.waiting = nil
	return loses
}

// silence waits until the program gives the connection up, if it is to find that out by itself.
func (c *connection) silence(server io.Reader) {
	c.proxy.mu.Lock()
	silent := c.proxy.silent
	c.proxy.mu.Unlock()
	if silent {
		_, _ = io.Copy(io.Discard, server)
	}
}

// store is a call of push or put.
type store struct{ keys, args []string }

// storeOf returns the store that a request is: a script with a partition's scheduled, messages and publishers, in
// whatever way it is called. It returns nil for other requests.
func storeOf(request []string) *store {
	if len(request) < 6 || !strings.HasPrefix(strings.ToUpper(request[0]), "EVAL") && strings.ToUpper(request[0]) != "FCALL" {
		return nil
	}
	n, err := strconv.Atoi(request[2])
	if err != nil || n < 3 || len(request) < 3+n+4 {
		return nil
	}
	s := &store{request[3 : 3+n], request[3+n:]}
	if !strings.HasSuffix(s.keys[0], "}:scheduled") || !strings.HasSuffix(s.keys[1], "}:messages") || !strings.HasSuffix(s.keys[2], "}:publishers") {
		return nil
	}
	return s
}

func (s *store) tag() string { return strings.TrimSuffix(s.keys[0], ":scheduled") }

// put tells whether it is a call of put, and not of push.
func (s *store) put() bool { return len(s.keys) == 3 }

func (s *store) channel() string {
	if s.put() {
		return s.args[2]
	}
	return s.args[3]
}

// repeats tells whether it is an earlier one again: push may take what put has left, and has other arguments.
func (s *store) repeats(earlier *store) bool {
	if s.put() != earlier.put() {
		return slices.Equal(s.args[:2], earlier.args[:2])
	}
	return slices.Equal(s.keys, earlier.keys) && slices.Equal(s.args, earlier.args)
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
