// Package promtest runs a real Prometheus, on a free loopback port, and asks it. A missing
// prometheus is an error, never skipped; scripts/install.sh prometheus installs it.
package promtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	startTimeout = 20 * time.Second
	pollEvery    = 20 * time.Millisecond
)

// Config configures a Server. Only Interval is required.
type Config struct {
	Interval time.Duration // between scrapes
	Flags    []string      // more flags of prometheus
	Rules    string        // a file of rules to evaluate as often; "" for none
}

// Server is a prometheus process.
type Server struct {
	Addr string

	// immutable
	dir   string
	cmd   *exec.Cmd
	log   *bytes.Buffer // of cmd, which has ended before it is read
	ended chan struct{} // closed when cmd has ended
}

// Prometheus begins to watch a directory after it has listed it, so it may miss a file that comes in between; it lists again in
// each refresh_interval.
const configFile = `
global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}
rule_files: [%[3]s]
scrape_configs:
  - job_name: redisdelay
    file_sd_configs: [{files: ['%[2]s/*.json'], refresh_interval: 1s}]
`

// Start starts a Prometheus and waits until it answers.
func Start(ctx context.Context, config Config) (*Server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "prometheus-")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: addr, dir: dir, log: &bytes.Buffer{}, ended: make(chan struct{})}
	if err := s.launch(config); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(), fmt.Errorf("prometheus says: %s", s.Log()))
	}
	return s, nil
}

func freeAddr() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func (s *Server) launch(config Config) error {
	file := filepath.Join(s.dir, "prometheus.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configFile, config.Interval, s.dir, config.Rules), 0o600); err != nil {
		return err
	}
	s.cmd = exec.Command("prometheus", append([]string{
		"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(s.dir, "data"), "--web.listen-address=" + s.Addr,
		"--log.level=warn",
	}, config.Flags...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("%w; install it with scripts/install.sh prometheus", err)
	}
	go func() { // ends with the process, which Stop ends
		defer close(s.ended)
		_ = s.cmd.Wait() // stopped
	}()
	return nil
}

// ready waits until the server answers.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := s.Get(ctx, "/-/ready", nil)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.ended:
			return fmt.Errorf("prometheus has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("prometheus is not ready: %w", err)
		}
	}
}

// Stop ends the server and removes its data. It is not to be called twice.
func (s *Server) Stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-s.ended
	return os.RemoveAll(s.dir)
}

// Log is what a server that has been stopped has said.
func (s *Server) Log() string { return s.log.String() }

// Scrape makes the server scrape an address from now on, in place of what was known by the
// same name. All series get the labels.
func (s *Server) Scrape(name, addr string, labels map[string]string) error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	text, err := json.Marshal([]group{{[]string{addr}, labels}})
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file+".json")
}
