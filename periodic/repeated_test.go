package periodic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// onTicks does something to calls that read or write the record of a schedule.
type onTicks struct {
	redistest.Hook
	do func(call func() error) error // nil: nothing
}

func (o *onTicks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		call := func() error { return next(ctx, cmds) }
		if o.do == nil || !aboutTicks(cmds) {
			return call()
		}
		err := o.do(call)
		for _, cmd := range cmds {
			if err != nil {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

func aboutTicks(cmds []redis.Cmder) bool {
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			if strings.HasSuffix(fmt.Sprint(arg), "}:ticks") {
				return true
			}
		}
	}
	return false
}

// record has the words of what the topic knows of the schedule; see tick.lua.
func (l *lab) record() []string {
	l.t.Helper()
	return strings.Fields(l.client.HGet(l.t.Context(), l.key("ticks"), "report").Val())
}

// TestACallThatIsSentTwiceStoresATickOnce in the record, too, which would else have fewer ticks than are wanted.
func TestACallThatIsSentTwiceStoresATickOnce(t *testing.T) {
	client := redistest.Client(t)
	l := newLab(t, client)
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * 1", StoreAtLeast: 3}
	require.NoError(t, l.p.Set(t.Context(), s))
	once := l.record()
	require.Len(t, once, 3+2*3)

	client.AddHook(&onTicks{do: func(call func() error) error { return errors.Join(call(), call()) }})
	s.TTL = time.Hour
	require.NoError(t, l.p.Set(t.Context(), s))
	twice := l.record()
	require.Len(t, twice, len(once), "%v", twice)
	assert.NotEqual(t, once[0], twice[0], "the revision")
	assert.Equal(t, once[1], twice[1], "the cursor")
	assert.Len(t, l.pending(), 3)
}
