package languages

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// inPython runs a program with the modules of the example.
func inPython(t *testing.T, server *redistest.Server, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(python.interpreter(t), append([]string{"-c", program, scripts(t)}, args...)...)
	cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr, "PYTHONPATH="+filepath.Join(examples, python.folder))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

const opens = `
import os, sys, redis, protocol
scripts = protocol.Scripts(redis.Redis.from_url(os.environ["REDIS_URL"]), sys.argv[1])
protocol.Topic(scripts, "redisdelay", sys.argv[2]).open("2")
`

// TestATopicThatRedisHasLostFromTheListGetsTheVersionOfItsData also from a publisher that needs an older one.
func TestATopicThatRedisHasLostFromTheListGetsTheVersionOfItsData(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	msg := message.NewMessage("a", nil)
	redisdelay.SetOrderingKey(msg, "customer-7")
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	require.NoError(t, s.Client.HDel(t.Context(), "{redisdelay:topics}", s.Topic).Err())
	inPython(t, server, opens, s.Topic)
	assert.Equal(t, "3", s.Client.HGet(t.Context(), "{redisdelay:topics}", s.Topic).Val())
}

const twice = `
import os, sys, threading, redis, protocol, consumer
client = redis.Redis.from_url(os.environ["REDIS_URL"])
began, go = threading.Semaphore(0), threading.Event()
def handle(message):
    began.release()
    assert go.wait(20)
c = consumer.Consumer(protocol.Topic(protocol.Scripts(client, sys.argv[1]), "redisdelay", sys.argv[2]), "g", handle, workers=3, lease_ms=50)
c.heartbeat = c.done.wait  # so that the lease runs out
runs = threading.Thread(target=c.run, daemon=True)
runs.start()
assert began.acquire(timeout=10) and began.acquire(timeout=10), "no second delivery of the message"
held = sorted(c.held.values(), key=lambda m: m.attempt)
assert len(held) >= 2, held
assert [m.lost for m in held] == [True] * (len(held) - 1) + [False], "only the last one counts"
go.set()
with c.changed:
    assert c.changed.wait_for(lambda: not c.held, timeout=10), c.held
c.stop.set()
runs.join(15)
assert not runs.is_alive()
`

// TestADeliveryOfAMessageWhoseEarlierOneIsStillInHand has a place of its own in the consumer in Python.
func TestADeliveryOfAMessageWhoseEarlierOneIsStillInHand(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	require.NoError(t, s.Publisher().Publish(s.Topic, message.NewMessage("a", nil)))
	inPython(t, server, twice, s.Topic)
}

const registers = `
from unittest.mock import MagicMock
import redis, consumer
calls = []
def run(name, *_):
    calls.append(name)
    if name == "claim":
        return [b"groups", 5, b"other"] if len(calls) == 1 else [b"claimed", 0, -1, b"", [], [], [], 0, 1]
    if calls == ["claim", "register"]:
        raise redis.ConnectionError("once")
    return [b"added"]
topic = MagicMock(run=run)
c = consumer.Consumer(topic, "g", None)
c.partitions, c.requests[0], c.groups[0] = 1, 0, (0, [])
c.claim(0, 1, None)
assert calls == ["claim", "register", "register", "claim"], calls
`

// TestAGroupIsRegisteredAgainThroughAnError that passes.
func TestAGroupIsRegisteredAgainThroughAnError(t *testing.T) {
	inPython(t, redistest.New(t), registers)
}
