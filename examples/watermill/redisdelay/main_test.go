package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// output is what the program logs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestTheExamplePrintsWhatItsValidationExpects, two seconds after it has published.
func TestTheExamplePrintsWhatItsValidationExpects(t *testing.T) {
	validation, err := os.ReadFile(".validate_example.yml")
	require.NoError(t, err)
	expected := regexp.MustCompile(`expected_output: "(.*)"`).FindSubmatch(validation)
	require.NotNil(t, expected)
	var out output
	log.SetOutput(&out)
	defer log.SetOutput(os.Stderr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	start := time.Now()
	addr := redistest.New(t).Addr
	go func() { ended <- run(ctx, addr) }() // ends with ctx
	require.Eventually(t, func() bool { return regexp.MustCompile(string(expected[1])).MatchString(out.String()) }, fixture.Soon, 10*time.Millisecond)
	assert.Greater(t, time.Since(start), 2*time.Second)
	cancel()
	require.NoError(t, <-ended)
}
