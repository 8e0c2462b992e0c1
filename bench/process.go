package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
)

// process is this program in another process, as a server. It ends with its standard input.
type process struct {
	addr  string    // its address, the first line of its output
	end   io.Closer // its standard input
	child *exec.Cmd
}

// startSelf starts this program with arguments.
func startSelf(ctx context.Context, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.CommandContext(ctx, self, args...)
	child.Stderr = os.Stderr
	end, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, end.Close(), child.Wait())
	}
	return &process{addr: strings.TrimSpace(addr), end: end, child: child}, nil
}

func (p *process) stop() error { return errors.Join(p.end.Close(), p.child.Wait()) }
