package main

import (
	"bufio"
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
)

// claimKeys is the minimum number of keys of a call of claim.lua; the other scripts that
// consumers call have fewer.
const claimKeys = 12

// monitor counts the commands that clients send, with Redis's MONITOR: INFO commandstats
// counts those within scripts as well. It is only for runs with few commands.
type monitor struct {
	conn    net.Conn
	reading sync.WaitGroup // the goroutine that reads, until stop

	mu           sync.Mutex
	sent, claims int // guarded by mu
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
	words := strings.SplitN(command, `" "`, 4)
	if !found || strings.Contains(line, "[0 lua]") || strings.EqualFold(strings.Trim(words[0], "\"\r\n"), "info") {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent++
	if strings.EqualFold(words[0], "evalsha") && len(words) > 2 {
		if keys, err := strconv.Atoi(words[2]); err == nil && keys >= claimKeys {
			m.claims++
		}
	}
}

// counts returns how many commands, and among them claims, have been sent so far.
func (m *monitor) counts() (sent, claims float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64(m.sent), float64(m.claims)
}

func (m *monitor) stop() {
	_ = m.conn.Close()
	m.reading.Wait()
}
