// Package redistest runs real Redis servers for tests, on free loopback ports: single servers, a
// Cluster, and a master and a replica under Sentinel. If the server program is missing, tests fail;
// they are never skipped. [Variable] names a program to use instead of the redis-server on the
// PATH.
package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const startTimeout = 20 * time.Second

// Durable has the options of a server that keeps acknowledged writes in a crash.
var Durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

var errStopped = errors.New("server is stopped")

// Server is a redis-server process. If it ends without Stop, it is restarted on the same port with
// the same data, so killing it restarts it.
type Server struct {
	Addr string

	// immutable once it runs
	dir   string
	args  []string
	files map[string]string // to create in dir before the first start
	tls   *tls.Config       // nil without TLS
	admin *redis.Client     // for this package's own commands

	stopped chan struct{} // closed when supervise has returned

	guard      *exec.Cmd // kills the server if this process dies
	guardInput *os.File

	mu       sync.Mutex
	cmd      *exec.Cmd // guarded by mu
	answered bool      // guarded by mu; a server that never answered is not restarted
	stopping bool      // guarded by mu
	down     bool      // guarded by mu; while true, the server is not restarted
	away     time.Time // guarded by mu; until then, the server is not restarted
}

// Start runs a server with extra command-line options and waits until it answers.
func Start(options ...string) (*Server, error) {
	return tryThrice(func() (*Server, error) {
		ports, err := freePorts(1)
		if err != nil {
			return nil, err
		}
		s := newServer(ports[0], options...)
		return s, s.run()
	})
}

// tryThrice calls start up to three times, because another process may take a free port first.
func tryThrice[T any](start func() (*T, error)) (*T, error) {
	if _, err := Program(); err != nil {
		return nil, err
	}
	var errs []error
	for range 3 {
		started, err := start()
		if err == nil {
			return started, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func newServer(port int, options ...string) *Server {
	return &Server{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		args: append([]string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1",
			"--save", "", "--logfile", logFile, "--daemonize", "no",
		}, options...),
		files:   make(map[string]string),
		stopped: make(chan struct{}),
	}
}

// run starts the server and waits until it answers. If it does not, run removes it.
func (s *Server) run() error {
	if err := s.prepare(); err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	s.admin = redis.NewClient(s.options())
	if err := s.launch(); err != nil {
		return errors.Join(err, s.admin.Close(), os.RemoveAll(s.dir))
	}
	go s.supervise()
	err := s.startGuard()
	if err == nil {
		err = s.Wait()
	}
	if err != nil {
		return errors.Join(err, fmt.Errorf("redis-server says: %s", s.words()), s.Stop())
	}
	s.mu.Lock()
	s.answered = true
	s.mu.Unlock()
	return nil
}

func (s *Server) prepare() (err error) {
	if s.dir, err = os.MkdirTemp("", "redistest"); err != nil {
		return err
	}
	for name, content := range s.files {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// options returns the options of a client that returns each error at once.
func (s *Server) options() *redis.Options {
	return &redis.Options{
		Addr: s.Addr, TLSConfig: s.tls,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		ReadTimeout: 10 * time.Second, // more than a MIGRATE may take
	}
}

// Wait blocks until the server answers and has loaded its data.
func (s *Server) Wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := s.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.stopped:
			return fmt.Errorf("redis-server on %s has ended: %w", s.Addr, err)
		case <-ctx.Done():
			return fmt.Errorf("redis-server on %s does not answer: %w", s.Addr, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// answers reports why the server does not answer, or that another process answers on its
// port.
func (s *Server) answers(ctx context.Context) error {
	if err := s.listens(ctx); err != nil {
		return err
	}
	if err := s.admin.Ping(ctx).Err(); err != nil {
		return err
	}
	info := s.admin.InfoMap(ctx, "server")
	if err := info.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	pid := strconv.Itoa(s.cmd.Process.Pid)
	s.mu.Unlock()
	if got := info.Item("Server", "process_id"); got != pid {
		return fmt.Errorf("process %s answers instead of %s", got, pid)
	}
	return nil
}

// listens reports why the server does not accept connections. The client would find out, too, but
// would log it each time.
func (s *Server) listens(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Stop ends the server and removes its data.
func (s *Server) Stop() error {
	s.mu.Lock()
	s.stopping = true
	err := ignoreEnded(s.cmd.Process.Kill())
	s.mu.Unlock()
	<-s.stopped
	if s.guard != nil && s.guard.Process != nil {
		_ = s.guard.Process.Kill()
		_ = s.guard.Wait() // killed
		err = errors.Join(err, s.guardInput.Close())
	}
	return errors.Join(err, s.admin.Close(), os.RemoveAll(s.dir))
}
