package languages

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/conformance"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// stage is a durable server and a topic with a name that has to be escaped.
func stage(t *testing.T, partitions int) (*fixture.Scene, *redistest.Server) {
	t.Helper()
	server := redistest.New(t, redistest.Durable...)
	s := fixture.NewOn(t, server)
	s.Topic = "заказы: 50% {off}"
	require.NoError(t, s.Publisher(fixture.Partitions(partitions)).Publish(s.Topic, fixture.Keyed("first", "first", time.Hour)))
	_, err := s.Publisher().Cancel(t.Context(), s.Topic, "first")
	require.NoError(t, err)
	return s, server
}

// process is a program of the example.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// run starts a file of a language's example.
func (l language) run(t *testing.T, server *redistest.Server, file string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(l.interpreter(t), append([]string{l.path(file)}, args...)...)
	cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr, "LEASE_MS=4000")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return &process{t, cmd, in, bufio.NewScanner(out)}
}

// kill ends it as a crash does.
func (p *process) kill() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Kill())
	_ = p.cmd.Wait() // killed
}

// order gives it an order, and returns the answer unless it dies first.
func (p *process) order(o conformance.Order) (a conformance.Answer, answered bool) {
	line, err := json.Marshal(o)
	require.NoError(p.t, err)
	if _, err := fmt.Fprintf(p.in, "%s\n", line); err != nil || !p.lines.Scan() {
		return conformance.Answer{}, false
	}
	require.NoError(p.t, json.Unmarshal(p.lines.Bytes(), &a))
	return a, true
}

// TestOthersPublishAndGoConsumes each message once, though the publisher and Redis are killed.
func TestOthersPublishAndGoConsumes(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			publishAndConsume(t, l)
		})
	}
}

func publishAndConsume(t *testing.T, l language) {
	const number = 240
	s, server := stage(t, 3)
	publishThroughKills(t, l, s.Topic, server, number)
	// Only now: an ack frees the key, and a publisher that starts slowly would store its order again.
	got := receive(s, s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.MaxInFlight = 50 }), l.name, number)
	assert.Len(t, got, number)
	for uuid, times := range got {
		assert.Equal(t, 1, times, uuid)
	}
	s.Settled()
}

// receive counts how often each message of a language comes, until there are so many.
func receive(s *fixture.Scene, messages <-chan *message.Message, name string, number int) map[string]int {
	s.T.Helper()
	got := map[string]int{}
	for len(got) < number {
		select {
		case msg := <-messages:
			got[msg.UUID]++
			assert.Equal(s.T, "payload of "+msg.UUID, string(msg.Payload))
			assert.Equal(s.T, name, msg.Metadata.Get("from"))
			assert.False(s.T, time.Now().Before(fixture.Delivery(s.T, msg).DueAt), "early: %s", msg.UUID)
			msg.Ack()
		case <-time.After(fixture.Soon):
			assert.Fail(s.T, "no message", "%d of %d", len(got), number)
			return got
		}
	}
	return got
}

// publishThroughKills gives orders to a publisher, and to the next one when it is killed in the middle of one. It kills Redis, too.
func publishThroughKills(t *testing.T, l language, topic string, server *redistest.Server, number int) {
	t.Helper()
	const perLife = 40
	file := scripts(t)
	p := l.run(t, server, l.publisher, file)
	for n := range number {
		if n%perLife == perLife-1 {
			victim := p.cmd.Process
			time.AfterFunc(time.Duration(n%7)*time.Millisecond, func() { _ = victim.Kill() })
		}
		if n == number/2 {
			require.NoError(t, server.KillFor(200*time.Millisecond))
		}
		uuid := fmt.Sprint("message-", n)
		o := conformance.Order{
			Topic: topic, UUID: uuid, Key: uuid, Payload: []byte("payload of " + uuid), DelayMS: 3000,
			Metadata: map[string]string{"from": l.name},
		}
		a, answered := p.order(o)
		for !answered { // it is not known whether it was stored; the key makes sure that it is stored once
			_ = p.cmd.Wait()
			p = l.run(t, server, l.publisher, file)
			a, answered = p.order(o)
		}
		require.Contains(t, []string{conformance.Stored, conformance.Duplicate}, a.Result, a.Error)
	}
}

// delivered is what the consumer prints of a message.
type delivered struct {
	UUID     string            `json:"uuid"`
	Metadata map[string]string `json:"metadata"`
	Attempt  int               `json:"attempt"`
	Payload  []byte            `json:"payload_base64"`
}

// collect reads what a consumer prints until it ends.
func (p *process) collect(into func(delivered)) {
	for p.lines.Scan() {
		var d delivered
		if json.Unmarshal(p.lines.Bytes(), &d) == nil { // its last line may be cut
			into(d)
		}
	}
}

// mail is a consumer group whose consumers are programs in Python, which come and go.
const mail = "mail: ü"

// prints are what consumers have printed.
type prints struct {
	mu      sync.Mutex
	got     map[string]delivered // guarded by mu; by UUID
	reading sync.WaitGroup
}

func (p *prints) read(from *process) {
	p.reading.Go(func() {
		from.collect(func(d delivered) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.got[d.UUID] = d
		})
	})
}

func (p *prints) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.got)
}

// TestGoPublishesAndPythonConsumes each message, though consumers and connections are killed. Another group, in Go, gets all too.
func TestGoPublishesAndPythonConsumes(t *testing.T) {
	const number = 300
	s, server := stage(t, 3)
	file, all := scripts(t), &prints{got: map[string]delivered{}}
	consume := func() *process {
		p := python.run(t, server, "consumer.py", file, s.Topic, mail)
		all.read(p)
		return p
	}
	consumers := []*process{consume(), consume()}
	requireGroups(t, s, 3, mail)
	others := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup, c.MaxInFlight = "billing", 50 })
	publisher := s.Publisher()
	for n := range number {
		require.NoError(t, publisher.Publish(s.Topic, numbered(n)))
		if n == number/3 {
			consumers[0].kill()
			consumers[0] = consume()
		}
		if n == number/2 {
			redistest.Command(t, s.Client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			redistest.Command(t, s.Client, "CLIENT", "KILL", "TYPE", "pubsub")
		}
	}
	for range number {
		s.Next(others).Ack()
	}
	require.Eventually(t, func() bool { return all.count() == number }, 2*fixture.Soon, 20*time.Millisecond)
	s.Settled()
	for _, p := range consumers {
		require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	}
	all.reading.Wait()
	for n := range number {
		requireNumbered(t, n, all.got[numbered(n).UUID])
	}
}

// numbered is a message that is due soon. Some have ordering keys, and some fail once.
func numbered(n int) *message.Message {
	msg := fixture.Delayed(fmt.Sprint("message-", n), time.Duration(n%5)*time.Millisecond)
	msg.Payload = message.Payload{0, 0xff, byte(n)}
	if n%10 == 0 {
		msg.Metadata.Set("example", "fails once")
	}
	if n%3 == 0 {
		redisdelay.SetOrderingKey(msg, fmt.Sprint("customer ", n%4))
	}
	return msg
}

func requireNumbered(t *testing.T, n int, d delivered) {
	t.Helper()
	assert.Equal(t, []byte{0, 0xff, byte(n)}, d.Payload)
	if n%10 == 0 {
		assert.GreaterOrEqual(t, d.Attempt, 2, d.UUID)
	}
}

// requireGroups waits until a group is registered in all partitions.
func requireGroups(t *testing.T, s *fixture.Scene, partitions int, group string) {
	t.Helper()
	require.Eventually(t, func() bool {
		keys, err := s.Keys(t.Context())
		require.NoError(t, err)
		registered := 0
		for _, key := range keys {
			if fixture.Kind(key) == "groups" && s.Client.SIsMember(t.Context(), key, group).Val() {
				registered++
			}
		}
		return registered == partitions
	}, fixture.Soon, 5*time.Millisecond)
}

// TestPythonKeepsWhatAHandlerHas for longer than the lease, and takes over what a dead consumer had.
func TestPythonKeepsWhatAHandlerHas(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	file := scripts(t)
	first := python.run(t, server, "consumer.py", file, s.Topic, "mail")
	slow := fixture.Delayed("slow", 0)
	slow.Metadata.Set("example seconds", "6")
	require.NoError(t, s.Publisher().Publish(s.Topic, slow))
	unack := s.Key("unack") + ":mail"
	held := func() bool { return s.Client.ZCard(t.Context(), unack).Val() == 1 }
	require.Eventually(t, held, fixture.Soon, 5*time.Millisecond)
	second := python.run(t, server, "consumer.py", file, s.Topic, "mail")
	var d delivered
	require.True(t, first.lines.Scan())
	require.NoError(t, json.Unmarshal(first.lines.Bytes(), &d))
	assert.Equal(t, 1, d.Attempt)
	s.Settled()
	assert.Zero(t, s.Client.HLen(t.Context(), s.Key("attempts")+":mail").Val())

	require.NoError(t, second.cmd.Process.Signal(os.Interrupt))
	assert.False(t, second.lines.Scan(), "the lease was kept, so nobody else had it: %s", second.lines.Text())
	slow = fixture.Delayed("again", 0)
	slow.Metadata.Set("example seconds", "2")
	require.NoError(t, s.Publisher().Publish(s.Topic, slow))
	require.Eventually(t, held, fixture.Soon, 5*time.Millisecond)
	first.kill()
	third := python.run(t, server, "consumer.py", file, s.Topic, "mail")
	require.True(t, third.lines.Scan())
	require.NoError(t, json.Unmarshal(third.lines.Bytes(), &d))
	assert.Equal(t, delivered{UUID: "again", Attempt: d.Attempt, Metadata: d.Metadata, Payload: []byte{}}, d)
	s.Settled()
}

// TestPythonBuriesWhatIsOfNoUse: what is too old, and what cannot be decoded.
func TestPythonBuriesWhatIsOfNoUse(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	msg := fixture.Delayed("old", 0)
	redisdelay.SetTTL(msg, time.Millisecond)
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	garbled := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Marshaler = nonsense{} })
	require.NoError(t, garbled.Publish(s.Topic, fixture.Delayed("nonsense", 0)))
	p := python.run(t, server, "consumer.py", scripts(t), s.Topic, "mail")
	reasons := s.Key("reasons") + ":mail"
	require.Eventually(t, func() bool { return s.Client.HLen(t.Context(), reasons).Val() == 2 }, fixture.Soon, 5*time.Millisecond)
	var list []string
	for _, reason := range s.Client.HVals(t.Context(), reasons).Val() {
		list = append(list, reason[:7])
	}
	assert.ElementsMatch(t, []string{"expired", "cannot "}, list)
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, p.cmd.Wait())
	assert.Equal(t, int64(0), s.Client.HLen(t.Context(), s.Key("consumers")+":mail").Val(), "it has said that it leaves")
}

type nonsense struct{}

func (nonsense) Marshal(string, *message.Message) ([]byte, error) { return []byte("nonsense"), nil }
