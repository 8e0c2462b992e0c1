package conformance

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// answerWithin is how long a program may take for an answer: more than it should try for.
	answerWithin = 40 * time.Second

	// endWithin is how long a program may take to end once its standard input has ended.
	endWithin = 10 * time.Second
)

// Order is a message that a program is to publish: a line of its standard input.
type Order struct {
	Topic       string            `json:"topic"`
	UUID        string            `json:"uuid"`
	Payload     []byte            `json:"payload_base64"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	DelayMS     int64             `json:"delay_ms"` // from when Redis stores it
	Key         string            `json:"key,omitempty"`
	OrderingKey string            `json:"ordering_key,omitempty"`
	TTLMS       int64             `json:"ttl_ms,omitempty"`
}

// The results that a program may answer with.
const (
	Stored      = "stored"
	Duplicate   = "duplicate"   // the key is in use; nothing is stored
	Refused     = "refused"     // nothing is stored
	Unknown     = "unknown"     // it may be stored
	Unsupported = "unsupported" // the program cannot do that; nothing is stored
)

// Answer is what a program says of an order: a line of its standard output.
type Answer struct {
	UUID   string `json:"uuid"`
	Result string `json:"result"`
	Error  string `json:"error,omitempty"` // for people
}

var errNoAnswer = errors.New("the program does not answer")

// program is a running program.
type program struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *os.File
	lines  *bufio.Reader
	cancel context.CancelFunc

	answerWithin time.Duration
}

// shared lets several programs write to one writer.
type shared struct {
	mu sync.Mutex
	to io.Writer // guarded by mu
}

func (s *shared) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to.Write(text)
}

func startProgram(ctx context.Context, o Options, env ...string) (*program, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &program{
		cmd: exec.CommandContext(ctx, o.Command[0], o.Command[1:]...), cancel: cancel, answerWithin: cmp.Or(o.answerWithin, answerWithin),
	}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.WaitDelay = time.Second
	if o.Errors != nil {
		p.cmd.Stderr = o.Errors
	}
	out, write, err := os.Pipe()
	if err == nil {
		p.out, p.cmd.Stdout, p.lines = out, write, bufio.NewReader(out)
		p.in, err = p.cmd.StdinPipe()
		if err == nil {
			err = p.cmd.Start()
		}
		err = errors.Join(err, write.Close())
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start the program: %w", err)
	}
	return p, nil
}

// ask gives an order and returns the answer.
func (p *program) ask(o Order) (Answer, error) {
	line, err := json.Marshal(o)
	if err != nil {
		return Answer{}, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return Answer{}, fmt.Errorf("give it an order: %w", err)
	}
	if err := p.out.SetReadDeadline(time.Now().Add(p.answerWithin)); err != nil {
		return Answer{}, err
	}
	text, err := p.lines.ReadBytes('\n')
	if err != nil {
		return Answer{}, fmt.Errorf("%w to %s: %w", errNoAnswer, line, err)
	}
	var a Answer
	if err := json.Unmarshal(text, &a); err != nil {
		return Answer{}, fmt.Errorf("the answer %q is no JSON object: %w", text, err)
	}
	if a.UUID != o.UUID {
		return a, fmt.Errorf("the answer is about uuid %q, not %q", a.UUID, o.UUID)
	}
	return a, nil
}

// end ends the program as its user would, and then by force.
func (p *program) end() error {
	err := p.in.Close()
	timer := time.AfterFunc(endWithin, p.cancel)
	defer p.cancel()
	if waited := p.cmd.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("the program ends with %w", waited))
	}
	if !timer.Stop() {
		err = errors.Join(err, fmt.Errorf("the program does not end within %s of its input", endWithin))
	}
	return errors.Join(err, p.out.Close())
}
