package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	if fault := os.Getenv(fakeVariable); fault != "" {
		if err := runFake(fault); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	redistest.Parallel(8) // programs that are judged mostly wait
	redistest.Main(m)
}

// judgeFake judges the test binary as a publisher with a fault.
func judgeFake(t *testing.T, fault string, o Options) map[string]Result {
	t.Helper()
	var errs bytes.Buffer
	o.Command, o.Errors = []string{"env", fakeVariable + "=" + fault, os.Args[0], "-test.run=^$"}, &errs
	results := map[string]Result{}
	err := Run(t.Context(), o, func(r Result) { results[r.Case] = r })
	require.NoError(t, err, errs.String())
	return results
}

// TestSoundPublishersPass all cases, and so does the library itself.
func TestSoundPublishersPass(t *testing.T) {
	t.Parallel()
	for _, publisher := range []string{sound, library} {
		t.Run(publisher, func(t *testing.T) {
			t.Parallel()
			results := judgeFake(t, publisher, Options{})
			assert.Len(t, results, len(cases))
			for _, r := range results {
				if r.Case != "wrong clock" || r.Outcome != Skipped { // this binary has no libc to deceive; the publisher in Python has
					assert.Equal(t, Passed, r.Outcome, "%s: %q", r.Case, r.Problems)
				}
			}
		})
	}
}

// TestAPublisherWithoutKeysPasses the cases that are not about them.
func TestAPublisherWithoutKeysPasses(t *testing.T) {
	t.Parallel()
	r := judgeFake(t, keyless, Options{Cases: []string{"lost reply"}})["lost reply"]
	assert.Equal(t, Passed, r.Outcome, "%q", r.Problems)
}

// TestEachFaultIsFound by the case that is about it.
func TestEachFaultIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ fault, by, says string }{
		{seconds, "delayed", "too early"},
		{early, "delayed", "too early"},
		{hostClock, "delayed", "too late"},
		{again, "lost reply", "stored 2 times"},
		{gaveUp, "lost reply", `is stored, and the answer is "refused"`},
		{otherPartition, "partitions", "is in partition"},
		{noKey, "key", `want "duplicate"`},
		{ignores, "key", `want "duplicate"`},
		{forgets, "script flush", "is not stored"},
		{noRetry, "READONLY", `want "stored"`},
		{sameName, "restart", `want "stored"`},
		{disorder, "order", "is not above"},
		{noVersion, "too new", `want "refused"`},
		{unlisted, "ordering key and ttl", "want 3"},
		{noMetadata, "plain", "metadata"},
		{ownKey, "keys", "none of the protocol"},
		{wrongChannel, "plain", `names the channel "elsewhere"`},
		{noChannel, "plain", `names the channel ""`},
		{newNumber, "lost reply", "after a lost reply is not the same"},
		{newIDs, "lost reply", "after a lost reply is not the same"},
		{noKeyMetadata, "key", "_redisdelay_key"},
		{noOrderKey, "ordering key and ttl", "_redisdelay_ordering_key"},
		{wrongTTL, "ordering key and ttl", "_redisdelay_ttl"},
		{wrongDelay, "delayed", "_watermill_delayed_for"},
		{looksOnce, "more partitions", "as if there were one"},
		{neverLists, "plain", "is not listed"},
		{patient, "silence", "does not answer"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel() // some wait long
			r := judgeFake(t, c.fault, Options{Cases: []string{c.by}, answerWithin: 5 * time.Second})[c.by]
			assert.Equal(t, Failed, r.Outcome)
			assert.Contains(t, strings.Join(r.Problems, "\n"), c.says)
		})
	}
}

// TestSomebodyElsesServerIsLeftAsItWas: nothing that others would notice, and no key.
func TestSomebodyElsesServerIsLeftAsItWas(t *testing.T) {
	t.Parallel() // it waits long
	server := redistest.New(t)
	client := server.Client(t)
	redistest.Command(t, client, "SET", "theirs", 1)
	results := judgeFake(t, sound, Options{Redis: "redis://" + server.Addr + "/3"})
	for _, r := range results {
		if r.Case == "READONLY" {
			assert.Equal(t, Skipped, r.Outcome)
			continue
		}
		assert.NotEqual(t, Failed, r.Outcome, "%s: %q", r.Case, r.Problems)
	}
	assert.Equal(t, "1", client.Get(t.Context(), "theirs").Val())
	assert.Equal(t, int64(1), client.DBSize(t.Context()).Val())
	assert.NotContains(t, client.Info(t.Context(), "keyspace").Val(), "db3:")
}

func TestAProgramThatDoesNotAnswerFails(t *testing.T) {
	for _, command := range [][]string{
		{"sh", "-c", "exit 0"}, {"sh", "-c", "echo hello"}, {"sh", "-c", `echo '{"uuid":"else"}'`},
	} {
		var results []Result
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := Run(ctx, Options{Command: command, Cases: []string{"plain"}}, func(r Result) { results = append(results, r) })
		cancel()
		require.NoError(t, err)
		require.Len(t, results, 1)
		assert.Equal(t, Failed, results[0].Outcome, "%q", command)
	}
	assert.Error(t, Run(t.Context(), Options{Command: []string{"/no/such/program"}, Redis: "rediss://localhost"}, nil))
	assert.ErrorIs(t, Run(t.Context(), Options{Cases: []string{"plane"}}, nil), ErrUnknownCase)
}
