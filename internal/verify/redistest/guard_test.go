package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	childVariable = "REDISTEST_CHILD"
	childPrefix   = "listening:"
)

// TestChild is the process that the next test kills.
func TestChild(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		t.Skip("only in the child of TestServersEndWithTheirProcess")
	}
	s := NewSentinel(t)
	var addrs []string
	for _, server := range slices.Concat(s.servers, s.watchers) {
		addrs = append(addrs, server.Addr)
	}
	fmt.Println(childPrefix, strings.Join(addrs, " "))
	<-t.Context().Done() // the test kills the process first
}

func TestServersEndWithTheirProcess(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), childVariable+"=1")
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	addrs := readAddrs(bufio.NewScanner(output))
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())

	require.Len(t, addrs, 5)
	require.NoError(t, until(t.Context(), func(context.Context) error {
		for _, addr := range addrs {
			if conn, err := net.Dial("tcp", addr); err == nil {
				return errors.Join(fmt.Errorf("%s is there", addr), conn.Close())
			}
		}
		return nil
	}))
}

func readAddrs(lines *bufio.Scanner) []string {
	for lines.Scan() {
		if addrs, found := strings.CutPrefix(lines.Text(), childPrefix); found {
			return strings.Fields(addrs)
		}
	}
	return nil
}
