package queue

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestABatchSentAgainWaitsForReplicasToo sends a batch again over another connection, as
// after a lost reply. WAIT covers only the writes of its own connection.
func TestABatchSentAgainWaitsForReplicasToo(t *testing.T) {
	t.Parallel()
	master, replica := redistest.New(t, "--repl-diskless-sync-delay", "0"), redistest.New(t)
	host, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	redistest.Command(t, replica.Client(t), "REPLICAOF", host, port)
	r := newSceneOn(t, master)
	waiting := Batch{
		Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}},
		Replicas: 1, ReplicaTimeout: 200 * time.Millisecond,
	}
	require.Eventually(t, func() bool { // until the replica has joined
		waiting.Number++
		_, err := r.partition.Push(t.Context(), waiting)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)

	require.NoError(t, replica.Signal(syscall.SIGSTOP))
	defer func() { _ = replica.Signal(syscall.SIGCONT) }()
	waiting.Number++
	unnoticed := waiting
	unnoticed.Replicas = 0
	_, err = r.partition.Push(t.Context(), unnoticed)
	require.NoError(t, err)

	elsewhere := r.through(master.Client(t))
	_, err = elsewhere.Push(t.Context(), waiting)
	var shortfall *script.ReplicationError
	require.ErrorAs(t, err, &shortfall)
	assert.Equal(t, script.ReplicationError{Want: 1}, *shortfall)
}
