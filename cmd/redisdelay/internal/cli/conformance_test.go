package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/conformance"
)

// refusing answers each order that it does not support it.
const refusing = `sed -u 's/.*"uuid":"\([^"]*\)".*/{"uuid":"\1","result":"unsupported","error":"no keys"}/'`

func TestThePublisherIsJudged(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1") // is not used
	a := newTestApp()
	require.Zero(t, a.run(context.Background(), []string{"conformance", "--case", "key", "--", "sh", "-c", refusing}), "%s", a.err)
	assert.Contains(t, a.out.(*bytes.Buffer).String(), "key: ")
	assert.Contains(t, a.out.(*bytes.Buffer).String(), "no keys")

	a = newTestApp()
	assert.Equal(t, exitNo, a.run(context.Background(), []string{"conformance", "--case", "plain", "-o", "json", "--", "sh", "-c", refusing}))
	var r conformance.Result
	require.NoError(t, json.Unmarshal(a.out.(*bytes.Buffer).Bytes(), &r))
	assert.Equal(t, "plain", r.Case)
	assert.Equal(t, conformance.Failed, r.Outcome)
	assert.NotEmpty(t, r.Problems)

	s := newStage(t)
	assert.Equal(t, exitNo, s.run("conformance", "--case", "plain", "--", "sh", "-c", refusing).code)
	assert.Equal(t, exitOK, s.run("conformance", "--case", "READONLY", "--", "sh", "-c", refusing).code, "it is left out there")
}
