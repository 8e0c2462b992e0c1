package acceptance

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestARestartOfRedisLosesNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.New(t, redistest.Durable...)
	s := fixture.NewOn(t, server)
	p := s.Publisher()
	messages := s.Subscribe()
	const count, publishers = 1200, 20
	var publishing sync.WaitGroup
	for n := range publishers {
		publishing.Go(func() {
			for i := range count / publishers {
				assert.NoError(t, p.Publish(s.Topic, message.NewMessage(fmt.Sprint(n, "/", i), nil)))
			}
		})
	}
	seen := map[string]int{}
	for len(seen) < count {
		if len(seen) == count/3 || len(seen) == 2*count/3 {
			require.NoError(t, server.Signal(syscall.SIGKILL))
		}
		msg := s.Next(messages)
		seen[msg.UUID]++
		msg.Ack()
	}
	publishing.Wait()
	s.Settled()
	redelivered := 0
	for _, n := range seen {
		redelivered += n - 1
	}
	t.Logf("%d of %d messages were redelivered", redelivered, count)
}
