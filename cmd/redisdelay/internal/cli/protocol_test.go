package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/protocol"
)

func TestTheProtocolNeedsNoRedis(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	for _, args := range [][]string{{"protocol"}, {"protocol", "push", "claim"}, {"protocol", "push", "-o", "json"}} {
		a := newTestApp()
		require.Zero(t, a.run(context.Background(), args), "%v: %s", args, a.err)
		var d protocol.Document
		require.NoError(t, json.Unmarshal(a.out.(*bytes.Buffer).Bytes(), &d), "%v", args)
		assert.NotEmpty(t, d.Scripts)
	}
	assert.Equal(t, exitUsage, newTestApp().run(context.Background(), []string{"protocol", "pull"}))
}
