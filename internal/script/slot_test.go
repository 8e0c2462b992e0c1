package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSlotsAreThoseOfRedisCluster(t *testing.T) {
	// From the Redis Cluster specification, and CLUSTER KEYSLOT.
	for tag, slot := range map[string]int{"123456789": 0x31C3, "": 0, "foo": 12182, "user1000": 3443} {
		assert.Equal(t, slot, slotOf(tag), "%q", tag)
	}
}

func TestPartitionsSpreadEvenlyOverMasters(t *testing.T) {
	for _, c := range []struct{ partitions, masters, most, least int }{
		{3, 3, 1, 1},
		{6, 3, 2, 2},
		{8, 3, 3, 2},
		{12, 3, 4, 4},
		{24, 3, 8, 8},
		{12, 4, 3, 3},
		{12, 6, 2, 2},
		{24, 6, 4, 4},
	} {
		uneven := 0
		for n := range 200 {
			counts := make([]int, c.masters)
			for p := range c.partitions {
				counts[slotOfPartition(NewNames("redisdelay", fmt.Sprint("topic", n), p))*c.masters/slots]++
			}
			for _, count := range counts {
				if count > c.most || count < c.least {
					uneven++
					break
				}
			}
		}
		// A partition near the border between two masters may be on the wrong side.
		assert.Less(t, uneven, 20, "topics of 200 whose %d partitions spread unevenly over %d masters", c.partitions, c.masters)
	}
}

func slotOfPartition(p Names) int { return slotOf(strings.Trim(string(p), "{}")) }

func TestAPartitionIsNearItsIdealSlot(t *testing.T) {
	for _, topic := range awkward {
		first := slotOfPartition(NewNames("p", topic, 0))
		for n := 1; n < 256; n++ {
			distance := (slotOfPartition(NewNames("p", topic, n)) - first - offset(n)) & (slots - 1)
			require.Less(t, distance, nearby, "partition %d of %q", n, topic)
		}
	}
}

// TestPartitionNamesNeverChange since messages are stored under them.
func TestPartitionNamesNeverChange(t *testing.T) {
	var list []string
	for n := range 5 {
		list = append(list, string(NewNames("redisdelay", "orders", n)))
	}
	assert.Equal(t, []string{
		"{redisdelay:orders:0}",
		"{redisdelay:orders:1.937}",
		"{redisdelay:orders:2.1746}",
		"{redisdelay:orders:3.1780}",
		"{redisdelay:orders:4.1068}",
	}, list)
}
