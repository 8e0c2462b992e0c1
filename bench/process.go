package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// process is this program in a process of its own, which serves something. It ends with its standard input.
type process struct {
	addr  string    // where it serves: its first line
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

// peakMemory is the most that it has had in memory, in bytes: what the system counts, not only the heap.
func (p *process) peakMemory() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.child.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kilobytes, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kilobytes * 1024, err
		}
	}
	return 0, errors.New("the system does not say how much memory a process has")
}
