package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// TestSimilarFindingsAreSummarized over topics; others are all shown.
func TestSimilarFindingsAreSummarized(t *testing.T) {
	var out bytes.Buffer
	d := &diagnosis{app: &app{out: &out, err: &out, now: time.Now}, topics: map[alike][]string{}}
	d.bar = d.app.newBar("examined", 0)
	for i := range 1326 {
		d.find(admin.Finding{Severity: admin.SeverityWarning, Check: admin.CheckGroups, Topic: fmt.Sprintf("t%04d", i), Text: "no consumer"})
		d.find(admin.Finding{Severity: admin.SeverityInfo, Check: admin.CheckServer, Text: "a server"})
	}
	d.find(admin.Finding{Severity: admin.SeverityProblem, Check: admin.CheckGroups, Topic: "other", Text: "another severity"})
	require.NoError(t, d.more())
	assert.Equal(t, 5, strings.Count(out.String(), "no consumer"))
	assert.Equal(t, 1326, strings.Count(out.String(), "a server"))
	assert.Equal(t, 1, strings.Count(out.String(), "another severity"))
	assert.Contains(t, out.String(), `the same of 1,321 more topics: "t0005" … "t1325"`)
	assert.Equal(t, 1, d.problems)
}

func TestDoctorShowsItsProgressOnATerminal(t *testing.T) {
	var out, err bytes.Buffer
	now := time.Now()
	d := &diagnosis{app: &app{out: &out, err: &err, now: func() time.Time { return now }}, topics: map[alike][]string{}}
	d.app.terminal.err = true
	d.bar = d.app.newBar("examined", 0)
	d.update(admin.ExamineProgress{Topic: "orders", Done: 250, Total: 1000})
	assert.Contains(t, err.String(), " 25%  250 of 1,000")
	err.Reset()
	d.find(admin.Finding{Severity: admin.SeverityInfo, Check: admin.CheckServer, Text: "a server"})
	assert.Equal(t, string(clearLine), err.String(), "before the finding")
}
