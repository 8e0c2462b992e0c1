package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv("REDIS_ADDR") != "" {
		main()
		return
	}
	redistest.Main(m)
}

// TestTheProgramReceivesWhatItPublishes runs it as a process until it has received two messages, and interrupts it.
func TestTheProgramReceivesWhatItPublishes(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "REDIS_ADDR="+redistest.New(t).Addr)
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	received := 0
	lines := bufio.NewScanner(out)
	for received < 2 && lines.Scan() {
		if strings.Contains(lines.Text(), "payload: Hello, world!") {
			received++
		}
	}
	assert.Equal(t, 2, received)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, err = io.Copy(io.Discard, out)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
}
