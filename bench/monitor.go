package main

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// monitor counts the commands that clients send, with Redis's MONITOR, because INFO commandstats
// also counts commands within scripts. It is only for runs with few commands.
type monitor struct {
	conn    net.Conn
	reading sync.WaitGroup // the goroutine that reads, until stop
	sent    atomic.Int64
}

func startMonitor(ctx context.Context, l *lab) (*monitor, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.server.Addr)
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(conn)
	if _, err := lines.ReadString('\n'); err != nil { // OK
		return nil, err
	}
	m.reading.Go(func() {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			m.note(line)
		}
	})
	return m, nil
}

// note counts a line: +1700000000.000000 [0 127.0.0.1:5000] "evalsha" "<sha>" "12" ...
func (m *monitor) note(line string) {
	_, command, found := strings.Cut(line, `] "`)
	if found && !strings.Contains(line, "[0 lua]") && !strings.HasPrefix(strings.ToLower(command), "info") {
		m.sent.Add(1)
	}
}

func (m *monitor) stop() {
	_ = m.conn.Close()
	m.reading.Wait()
}
