package redistest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

const (
	logFile    = "redis.log"
	outputFile = "redis.out" // the server's output before it has a log
)

// launch starts the process, unless the server is stopping, and writes its id to the file that the
// guard and RestartCommand read.
func (s *Server) launch() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopped
	}
	program, err := Program()
	if err != nil {
		return err
	}
	logging.Disable() // go-redis would log each connection that a stopped server refuses
	output, err := os.OpenFile(filepath.Join(s.dir, outputFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }() // the server has its own copy
	cmd := exec.Command(program, s.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, output, output
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	return os.WriteFile(s.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}

// supervise restarts the server whenever it ends, until Stop.
func (s *Server) supervise() {
	defer close(s.stopped)
	for {
		s.mu.Lock()
		cmd := s.cmd
		s.mu.Unlock()
		_ = cmd.Wait() // usually killed on purpose
		for s.isDown() {
			<-time.After(5 * time.Millisecond)
		}
		if !s.hasAnswered() {
			return
		}
		if err := s.launch(); err != nil {
			return
		}
	}
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stopping && (s.down || time.Now().Before(s.away))
}

func (s *Server) hasAnswered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// startGuard runs a shell that waits for the end of its input and then kills the server. The input
// ends when this process ends, for any reason.
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

// words returns all output of the server.
func (s *Server) words() string {
	var said []byte
	for _, name := range []string{outputFile, logFile} {
		text, _ := os.ReadFile(filepath.Join(s.dir, name)) // it may be missing
		said = append(said, text...)
	}
	return string(said)
}

func (s *Server) pidFile() string { return filepath.Join(s.dir, "redis.pid") }

// Signal sends a signal to the server. After SIGKILL, it restarts; between SIGSTOP and SIGCONT, it
// hangs.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Signal(sig)
}

// KillFor kills the server, which stays down for a while and then restarts.
func (s *Server) KillFor(away time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = time.Now().Add(away)
	return s.cmd.Process.Kill()
}

// Down kills the server, which stays down until Up.
func (s *Server) Down() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	return ignoreEnded(s.cmd.Process.Kill())
}

// Up lets a server start again after Down; Wait waits until it answers.
func (s *Server) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// RestartCommand returns a command line that kills the server, so that it restarts.
func (s *Server) RestartCommand() []string {
	return []string{"sh", "-c", `kill -9 "$(cat "$1")"`, "sh", s.pidFile()}
}

func ignoreEnded(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
