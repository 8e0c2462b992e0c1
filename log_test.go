package redisdelay

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	errAway  = errors.New("redis is away")
	aPlace   = observe.Place{Topic: "orders", Group: "billing", Partition: 3}
	itsPlace = watermill.LogFields{"topic": "orders", "consumer_group": "billing", "partition": 3}
)

func TestWithoutALoggerNothingIsObserved(t *testing.T) {
	for _, logger := range []watermill.LoggerAdapter{nil, watermill.NopLogger{}} {
		o := logging(logger)
		assert.Nil(t, o.Claimed)
		assert.Nil(t, o.Delivered)
		assert.Nil(t, o.Settled)
		assert.Nil(t, o.Failed)
		assert.Nil(t, o.OutageBegan)
	}
}

func TestAnIgnoredDuplicateIsLogged(t *testing.T) {
	logger := watermill.NewCaptureLogger()
	logging(logger).Published(observe.Published{Topic: "orders", Messages: 3, Ignored: []string{"a", "b"}, Err: errAway})
	lines := logger.Captured()[watermill.DebugLogLevel]
	assert.Len(t, lines, 1)
	assert.Equal(t, watermill.LogFields{"topic": "orders", "messages": 2, "keys": []string{"a", "b"}}, lines[0].Fields)
}

func TestADeadMessageIsLoggedAsAnErrorWithItsPlace(t *testing.T) {
	logger := watermill.NewCaptureLogger()
	logging(logger).Buried(observe.Buried{Place: aPlace, ID: "a", Reason: "not acked in 5 deliveries"})
	lines := logger.Captured()[watermill.ErrorLogLevel]
	assert.Len(t, lines, 1)
	assert.Equal(t, "A message was dead-lettered", lines[0].Msg)
	assert.EqualError(t, lines[0].Err, "not acked in 5 deliveries")
	assert.Equal(t, itsPlace.Add(watermill.LogFields{"id": "a", "reason": "not acked in 5 deliveries"}), lines[0].Fields)
}

func TestEachKindOfSettlementHasItsOwnLogLine(t *testing.T) {
	logger := watermill.NewCaptureLogger()
	o := logging(logger)
	texts := map[string]bool{}
	for _, how := range []observe.Settlement{
		observe.Acked, observe.Nacked, observe.Released, observe.Abandoned, observe.Undecodable,
		observe.Deferred, observe.BuriedByHandler, observe.Unsettled,
	} {
		o.Settled(observe.Settled{Place: aPlace, ID: "a", Settlement: how, Took: time.Second, RetryIn: time.Minute})
		assert.NotEqual(t, "Settled a message", settlementText(how))
	}
	o.Settled(observe.Settled{Place: aPlace, ID: "a", Settlement: observe.Nacked, Stale: true})
	o.Settled(observe.Settled{Place: aPlace, ID: "b", Settlement: observe.Nacked})
	lines := logger.Captured()[watermill.DebugLogLevel]
	for _, line := range lines {
		texts[line.Msg] = true
	}
	assert.Len(t, texts, 9)
	assert.Equal(t, itsPlace.Add(watermill.LogFields{"id": "a", "took": time.Second, "retry_in": time.Minute}), lines[1].Fields)
	assert.Equal(t, itsPlace.Add(watermill.LogFields{"id": "b"}), lines[9].Fields, "a dead message is not tried again")
}

func TestAnOutageIsLoggedOnceUntilItEnds(t *testing.T) {
	for what, lines := range map[observe.Activity]int{
		observe.Publishing: 2, observe.Listening: 4, observe.CheckingPartitions: 4, observe.ExpiringGroups: 4, // with two partitions
		observe.Claiming: 4, observe.Settling: 4, observe.Extending: 4,
	} {
		logger := watermill.NewCaptureLogger()
		state := outage.New(logging(logger), 0)
		other := aPlace
		other.Partition++
		for range 2 {
			for range 3 {
				state.Failed(what, aPlace, errAway)
				state.Failed(what, other, errAway)
			}
			state.Worked(what, aPlace)
			state.Worked(what, other)
		}
		assert.Len(t, logger.Captured()[watermill.ErrorLogLevel], lines, what)
		assert.Len(t, logger.Captured()[watermill.InfoLogLevel], lines, what)
		assert.Len(t, logger.Captured()[watermill.DebugLogLevel], 12, "each attempt")
		fails, works := outageTexts(what)
		assert.NotContains(t, fails, "Failed: ")
		assert.NotContains(t, works, "Works again: ")
	}
}

func TestAPanicInTheUnmarshalerIsLoggedWithItsStack(t *testing.T) {
	logger := watermill.NewCaptureLogger()
	o := logging(logger)
	o.Failed(observe.Failed{Place: aPlace, Activity: observe.Decoding, ID: "a", Err: errAway})
	assert.Empty(t, logger.Captured()[watermill.ErrorLogLevel])
	o.Failed(observe.Failed{Place: aPlace, Activity: observe.Decoding, ID: "b", Err: &PanicError{Value: "no", Stack: []byte("main.go:1")}})
	lines := logger.Captured()[watermill.ErrorLogLevel]
	assert.Len(t, lines, 1)
	assert.Equal(t, itsPlace.Add(watermill.LogFields{"id": "b", "stack": "main.go:1"}), lines[0].Fields)
}
