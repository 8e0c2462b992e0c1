package script

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestTransient(t *testing.T) {
	for _, text := range []string{
		"READONLY You can't write against a read only replica.",
		"ERR READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"ERR max number of clients reached",
		"ERR no server connection available",
		"ERR Connection timed out",
		"ERR the backend is not ready",
		"upstream failure",
	} {
		assert.True(t, Transient(answer(text)), text)
	}
	for _, text := range []string{
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"ERR No permission to execute this command",
		"ERR command 'evalsha' not support",
		"ERR The user executing the script can't run this command or subcommand",
		"ERR user_script:1: attempt to index a nil value script: 0f, on @user_script:1.",
		"ERR Protocol error: invalid bulk length",
		"ERR request too large",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"NOTSTORED OOM command not allowed when used memory > 'maxmemory'.",
		"ERR the number of partitions is damaged",
	} {
		assert.False(t, Transient(answer(text)), text)
	}
	assert.False(t, Transient(NotStoredError("ERR the backend is not ready")), "this batch is never stored")
	assert.True(t, Transient(io.EOF))
	assert.False(t, Transient(&PanicError{Value: io.EOF}))
}
