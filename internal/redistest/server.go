// Package redistest runs real Redis servers for tests, on free loopback ports.
// A missing redis-server fails the test; it never skips it.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const startTimeout = 20 * time.Second

// Durable makes a server keep what it has acknowledged over a crash.
var Durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

var errStopped = errors.New("server is stopped")

// Server is a redis-server process. When it ends without Stop, it is started
// again on the same port with the same data, so killing it restarts it.
type Server struct {
	Addr string

	dir     string
	args    []string
	stopped chan struct{} // closed when supervise has returned

	guard      *exec.Cmd // kills the server should this process die
	guardInput *os.File

	mu       sync.Mutex
	cmd      *exec.Cmd // guarded by mu
	stopping bool      // guarded by mu
	away     time.Time // guarded by mu; not started again before
}

// Start runs a server with extra command-line options and waits until it answers.
func Start(options ...string) (*Server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("these tests need redis-server (make test installs it): %w", err)
	}
	var errs []error
	for range 3 { // another process may take the free port first
		s, err := start(options)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func start(options []string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, err
	}
	s := &Server{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		dir:  dir,
		args: append([]string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
			"--save", "", "--logfile", "redis.log", "--daemonize", "no",
		}, options...),
		stopped: make(chan struct{}),
	}
	if err := s.launch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go s.supervise()
	err = s.startGuard()
	if err == nil {
		err = s.Wait()
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "redis.log"))
		return nil, errors.Join(err, fmt.Errorf("redis-server log: %s", log), s.Stop())
	}
	return s, nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// launch starts the process, unless the server is to stop, and notes its id
// where the guard and RestartCommand find it.
func (s *Server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopped
	}
	cmd := exec.Command("redis-server", s.args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	return os.WriteFile(s.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}

// supervise starts the server again whenever it ends, until Stop.
func (s *Server) supervise() {
	defer close(s.stopped)
	for {
		s.mu.Lock()
		cmd := s.cmd
		s.mu.Unlock()
		_ = cmd.Wait() // killed on purpose, most of the time
		for s.isAway() {
			<-time.After(5 * time.Millisecond)
		}
		if err := s.launch(); err != nil {
			return
		}
	}
}

func (s *Server) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stopping && time.Now().Before(s.away)
}

// KillFor kills the server, which stays away for a while and then starts again.
func (s *Server) KillFor(away time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = time.Now().Add(away)
	return s.cmd.Process.Kill()
}

// startGuard runs a shell that waits for the end of its input, which comes when
// this process ends in whatever way, and then kills the server.
func (s *Server) startGuard() error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	s.guard = exec.Command("sh", "-c", `read _; kill -9 "$(cat "$1")" 2>/dev/null; rm -rf "$2"`, "sh", s.pidFile(), s.dir)
	s.guard.Stdin = read
	s.guardInput = write
	err = s.guard.Start()
	return errors.Join(err, read.Close())
}

// Wait blocks until the server answers and has loaded its data.
func (s *Server) Wait() error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis-server on %s does not answer: %w", s.Addr, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Signal sends a signal to the server: SIGKILL restarts it, SIGSTOP and SIGCONT
// make it hang for a while.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Signal(sig)
}

// RestartCommand is a command line that kills the server, which restarts it.
func (s *Server) RestartCommand() []string {
	return []string{"sh", "-c", `kill -9 "$(cat "$1")"`, "sh", s.pidFile()}
}

func (s *Server) pidFile() string { return filepath.Join(s.dir, "redis.pid") }

// Stop ends the server and removes its data.
func (s *Server) Stop() error {
	s.mu.Lock()
	s.stopping = true
	err := s.cmd.Process.Kill()
	s.mu.Unlock()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.stopped
	if s.guard != nil && s.guard.Process != nil {
		_ = s.guard.Process.Kill()
		_ = s.guard.Wait() // killed
		err = errors.Join(err, s.guardInput.Close())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
