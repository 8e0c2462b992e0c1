package dashboard

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

func TestTheFirstMinuteOfATrendIsDrawn(t *testing.T) {
	var one trend
	one.add(1, admin.Counts{Queued: 3})
	assert.Equal(t, "120.0,1.0 120.0,1.0", one.Waiting(), "a line of no length, which is a point")
}
