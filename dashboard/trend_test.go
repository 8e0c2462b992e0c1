package dashboard

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

func TestATrendKeepsTheMostOfEachMinuteOfAnHour(t *testing.T) {
	var tr trend
	tr.add(1000, admin.Counts{Queued: 5})
	tr.add(1000, admin.Counts{Queued: 3})
	assert.Empty(t, tr.Waiting(), "one point is no line")
	tr.add(1030, admin.Counts{Due: 10})
	assert.Equal(t, "59.0,12.0 120.0,1.0", tr.Waiting(), "the most of each minute that was read")
	assert.Equal(t, 10, tr.Peak())
	tr.add(1059, admin.Counts{})
	assert.Len(t, strings.Fields(tr.Waiting()), 3)
	tr.add(1060, admin.Counts{})
	assert.Len(t, strings.Fields(tr.Waiting()), 3, "the first is over an hour ago")
	assert.Equal(t, 10, tr.Peak())
	tr.add(5000, admin.Counts{})
	assert.Empty(t, tr.Waiting())
}
