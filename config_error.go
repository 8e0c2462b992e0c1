package redisdelay

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// maxDuration keeps sums of durations from overflowing.
const maxDuration = 100 * 365 * 24 * time.Hour

// ConfigError says which field of a config cannot be used, and why.
type ConfigError struct {
	Field   string
	Problem string
}

func (e *ConfigError) Error() string { return "redisdelay: config field " + e.Field + " " + e.Problem }

func validateShared(client redis.UniversalClient, prefix string) error {
	// A nil *redis.Client in the interface would panic at the first command.
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return &ConfigError{"Client", "is nil"}
	}
	if _, err := queue.NewStore(client, prefix, observe.Observer{}); err != nil {
		return &ConfigError{"Client", err.Error()}
	}
	if strings.ContainsAny(prefix, "{}") {
		return &ConfigError{"Prefix", fmt.Sprintf("%q contains a brace", prefix)}
	}
	return nil
}

// validateDuration checks the bounds of a duration. A number without a unit counts
// nanoseconds, so a duration that is far too short was probably meant in another unit.
func validateDuration(field string, d, least time.Duration) error {
	switch {
	case d > maxDuration:
		return &ConfigError{field, fmt.Sprintf("is %s, want at most %s", d, maxDuration)}
	case d >= least:
		return nil
	}
	problem := fmt.Sprintf("is %s, want at least %s", d, least)
	switch {
	case d <= 0 || d >= time.Microsecond*100:
	case d < 100:
		problem += fmt.Sprintf(": did you mean %d*time.Second?", int64(d))
	default:
		problem += fmt.Sprintf(": did you mean %d*time.Millisecond?", int64(d))
	}
	return &ConfigError{field, problem}
}
