package chaos

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// process is a worker in its own process.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when all its output is in the history
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// kill ends the process and waits for its last output.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.cmd.Wait() // killed
}

// wait waits for the process to end by itself.
func (p *process) wait() {
	<-p.done
	_ = p.cmd.Wait() // only its output counts
}

// spawn starts a worker process whose events go to a history.
func spawn(t *testing.T, j job, h *History) *process {
	t.Helper()
	encoded, err := json.Marshal(j)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(encoded))
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{t: t, cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the process, which the test ends
		defer close(p.done)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var e Event
			if json.Unmarshal(lines.Bytes(), &e) == nil { // the last line may be cut
				h.Add(e)
			}
		}
	}()
	t.Cleanup(p.kill)
	return p
}
