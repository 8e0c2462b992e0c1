package acceptance

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/sony/gobreaker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// The recipes of docs/recipes.md, as the tests of stacks use them.

// recipe: an order for all of them
var errBadOrder = errors.New("an order that nobody can handle")

func wholeStack(publisher message.Publisher) ([]message.HandlerMiddleware, error) {
	delayOnError := &middleware.DelayOnError{
		InitialInterval: 200 * time.Millisecond,
		MaxInterval:     time.Minute,
		Multiplier:      2, // a whole number: Watermill cuts off what follows the point
	}
	poison, err := middleware.PoisonQueueWithFilter(publisher, "orders.poison", func(err error) bool {
		return errors.Is(err, errBadOrder)
	})
	if err != nil {
		return nil, err
	}
	breaker := middleware.NewCircuitBreaker(gobreaker.Settings{Timeout: 100 * time.Millisecond})
	retry := middleware.Retry{
		MaxRetries:          2,
		InitialInterval:     10 * time.Millisecond,
		ResetContextOnRetry: true, // or each retry begins with the context that Timeout has ended
		ShouldRetry:         func(p middleware.RetryParams) bool { return !errors.Is(p.Err, errBadOrder) },
	}
	return []message.HandlerMiddleware{
		delayOnError.Middleware,
		poison,
		middleware.NewThrottle(1000, time.Second).Middleware,
		breaker.Middleware,
		retry.Middleware,
		middleware.Timeout(5 * time.Second),
		middleware.Recoverer,
	}, nil
}

// end of recipe

// recipe: a key for the Deduplicator
func deliveryKey(msg *message.Message) (string, error) {
	d, ok := redisdelay.DeliveryFromContext(msg.Context())
	if !ok {
		return "", errors.New("not delivered by redisdelay")
	}
	return fmt.Sprintf("%s/%d", d.ID, d.Token), nil
}

// end of recipe

// recipe: equal payloads
func payloadKey(msg *message.Message) (string, error) {
	if d, ok := redisdelay.DeliveryFromContext(msg.Context()); ok && d.Token > 1 {
		return deliveryKey(msg) // the first delivery has left its payload behind
	}
	return middleware.NewMessageHasherSHA256(1 << 20)(msg)
}

// end of recipe

// TestTheRecipesAreTheOnesThatAreTested compares the blocks of the page with the code above.
func TestTheRecipesAreTheOnesThatAreTested(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	require.NoError(t, err)
	source, err := os.ReadFile("recipes_test.go")
	require.NoError(t, err)
	var shown, tested []string
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		shown = append(shown, strings.TrimSpace(m[1]))
	}
	for _, m := range regexp.MustCompile(`(?s)\n// recipe: [^\n]*\n(.*?)\n// end of recipe\n`).FindAllStringSubmatch(string(source), -1) {
		tested = append(tested, strings.TrimSpace(m[1]))
	}
	require.Len(t, tested, 3)
	assert.ElementsMatch(t, tested, shown)
}
