package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// startTimeout is how long a service may take to listen.
const startTimeout = 10 * time.Second

var listening = regexp.MustCompile(`^Listening on http://(\S+) `)

// service is a process of the example watch.
type service struct {
	addr  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended; nil once it was killed

	said strings.Builder // its last words; to be read after ended
}

// startService starts a service and waits until it listens.
func startService(ctx context.Context, program, redisAddr, addr string, load float64) (*service, error) {
	s := &service{ended: make(chan struct{})}
	s.cmd = exec.Command(program, "-addr", addr, "-load", fmt.Sprint(load), "-pay-within", "2s")
	s.cmd.Env = append(os.Environ(), "REDIS_ADDR="+redisAddr)
	output, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	listens := make(chan string, 1)
	go func(ended chan struct{}) { // ends with the process, which stop or kill ends
		defer close(ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				listens <- m[1]
			}
			s.keep(lines.Text())
		}
		_ = s.cmd.Wait() // killed, or its last words say why
	}(s.ended)
	select {
	case s.addr = <-listens:
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("the service has ended: %s", s.said.String())
	case <-time.After(startTimeout):
	case <-ctx.Done():
	}
	return nil, errors.Join(errors.New("the service does not listen"), ctx.Err(), s.stop())
}

// keep keeps the last lines.
func (s *service) keep(line string) {
	const most = 10_000
	if s.said.Len() > most {
		s.said.Reset()
	}
	s.said.WriteString(line + "\n")
}

func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// stop ends the service unless it was killed. The error has its last words if it has failed.
func (s *service) stop() error {
	if s.ended == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-s.ended
	if !s.cmd.ProcessState.Success() {
		return fmt.Errorf("the service: %s: %s", s.cmd.ProcessState, s.said.String())
	}
	return nil
}
