package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Results of a Refusal other than an error to answer.
const (
	Closed = "closed" // close the connection
	Cut    = "cut"    // pass the command on, and then close the connection
	Silent = "silent" // pass the command on, and never reply again
)

// Refusal decides whether a proxy refuses a command. It returns "" if not, else the error to answer, or Closed, Cut or Silent.
// Connections are numbered from 1.
type Refusal func(conn int, command []string) string

// Refuse returns a Refusal of one command, by its first words in lower case, on all connections.
func Refuse(command, answer string) Refusal {
	return func(_ int, words []string) string {
		if strings.HasPrefix(strings.ToLower(strings.Join(words, " "))+" ", command+" ") {
			return answer
		}
		return ""
	}
}

// NewProxy runs a proxy in front of a server, like those of managed offerings, until the test ends, and returns its address.
func NewProxy(t testing.TB, target string, refuse Refusal) string {
	t.Helper()
	return between(t, target, func(number int, client, server net.Conn) (upward, downward func()) {
		replies := &valve{to: client}
		upward = func() {
			forward(client, server, replies, func(command []string) string { return refuse(number, command) })
		}
		return upward, func() { _, _ = io.Copy(replies, server) }
	})
}

// between listens, connects each client with a target, and copies bytes both ways until either way ends. It returns its address.
func between(t testing.TB, target string, join func(number int, client, server net.Conn) (upward, downward func())) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn // guarded by mu
	over := false       // guarded by mu
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		over = true
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	running.Go(func() {
		for number := 1; ; number++ {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			if open = append(open, client, server); over {
				_, _ = client.Close(), server.Close()
			}
			mu.Unlock()
			upward, downward := join(number, client, server)
			for _, carry := range []func(){upward, downward} {
				running.Go(func() {
					carry()
					_, _ = client.Close(), server.Close() // the other way may have closed them
				})
			}
		}
	})
	return listener.Addr().String()
}

// valve forwards replies until it is closed.
type valve struct {
	to     io.Writer
	closed atomic.Bool
}

func (v *valve) Write(p []byte) (int, error) {
	if v.closed.Load() {
		return len(p), nil
	}
	return v.to.Write(p)
}

// forward forwards commands until a connection ends. In place of a refused command, it sends a script that returns the answer,
// so that the answers of a pipeline keep their order.
func forward(client io.Reader, server io.Writer, replies *valve, refuse func(command []string) string) {
	reader := bufio.NewReader(client)
	for {
		command, err := readCommand(reader)
		if err != nil {
			return
		}
		switch answer := refuse(command); answer {
		case "":
		case Closed:
			return
		case Cut:
			replies.closed.Store(true)
			_ = writeCommand(server, command)
			return
		case Silent:
			replies.closed.Store(true)
		default:
			command = []string{"EVAL", "return redis.error_reply(ARGV[1])", "0", answer}
		}
		if err := writeCommand(server, command); err != nil {
			return
		}
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	count, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	command := make([]string, count)
	for i := range command {
		length, err := readLength(r, '$')
		if err != nil {
			return nil, err
		}
		word := make([]byte, length+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		command[i] = string(word[:length])
	}
	return command, nil
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q is not part of a command", line)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

func writeCommand(w io.Writer, command []string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
