package scripttest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TornEverywhere runs a case for each way to tear the last script that begin calls: after one
// of its writes, after two, and so on, each on a new topic. begin returns what is to be done then.
func TornEverywhere(t *testing.T, name string, begin func(t *testing.T, server *redistest.Server) (*Scene, func())) {
	t.Helper()
	server := redistest.New(t, append([]string{"--enable-debug-command", "yes"}, redistest.Durable...)...)
	for writes := 1; ; writes++ {
		torn := false
		t.Run(fmt.Sprintf("%s torn after %d writes", name, writes), func(t *testing.T) {
			r, afterwards := begin(t, server)
			if torn = r.Tear(server, writes); torn {
				afterwards()
			}
		})
		if !torn {
			require.Greater(t, writes, 1, "there was nothing to tear")
			return
		}
	}
}

// Tear cuts the last script in the append-only file off after some writes, and restarts
// Redis, which ignores those writes until the next restart. It returns false if the
// script has fewer.
func (s *Scene) Tear(server *redistest.Server, writes int) bool {
	s.T.Helper()
	dir := s.Client.ConfigGet(s.Ctx(), "dir").Val()["dir"]
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	require.NoError(s.T, err)
	require.Len(s.T, files, 1)
	content, err := os.ReadFile(files[0])
	require.NoError(s.T, err)
	script := commands(content[bytes.LastIndex(content, []byte("*1\r\n$5\r\nMULTI\r\n")):])
	require.Contains(s.T, script[len(script)-1], "EXEC", "nothing comes after the script")
	if writes+1 >= len(script) {
		return false
	}
	left := len(content) - len(strings.Join(script[writes+1:], ""))
	require.NoError(s.T, os.Truncate(files[0], int64(left+3))) // in the middle of the next command
	Restart(s.T, server)
	return true
}

// commands splits an append-only file into its commands.
func commands(content []byte) (list []string) {
	for len(content) > 0 {
		end := 0
		line := func() int {
			n, _ := strconv.Atoi(string(content[end+1 : end+bytes.IndexByte(content[end:], '\r')]))
			end += bytes.IndexByte(content[end:], '\n') + 1
			return n
		}
		for range line() {
			end += line() + 2
		}
		list = append(list, string(content[:end]))
		content = content[end:]
	}
	return list
}

// Reload makes Redis read its append-only file as at a start. Redis then runs the torn
// writes together with the next transaction, whatever that is.
func (s *Scene) Reload() {
	s.T.Helper()
	_, err := s.Client.TxPipelined(s.Ctx(), func(pipe redis.Pipeliner) error {
		pipe.Incr(s.Ctx(), "anything")
		pipe.Incr(s.Ctx(), "anything")
		return nil
	})
	require.NoError(s.T, err)
	redistest.Command(s.T, s.Client, "DEBUG", "LOADAOF")
}

// Restart kills a server and starts it again.
func Restart(t *testing.T, server *redistest.Server) {
	t.Helper()
	require.NoError(t, server.KillFor(0))
	require.NoError(t, server.Wait())
}
