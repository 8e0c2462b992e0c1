package script

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSlotsMatchRedisCluster(t *testing.T) {
	// From the Redis Cluster specification, and CLUSTER KEYSLOT.
	for tag, slot := range map[string]int{"123456789": 0x31C3, "": 0, "foo": 12182, "user1000": 3443} {
		assert.Equal(t, slot, slotOf(tag), "%q", tag)
	}
}

// TestPartitionsSpreadOverMasters evenly if their number is three times a power of two, for any topic, and for masters with equal
// shares of the slots.
func TestPartitionsSpreadOverMasters(t *testing.T) {
	for topic := range 400 {
		var partitions []int // their slots
		for n := range MaxPartitions {
			partitions = append(partitions, NewKeyNames("redisdelay", fmt.Sprint("topic", topic), n).Slot())
		}
		for masters := 1; masters <= 12; masters++ {
			for _, number := range []int{3, 6, 12, 24, 48, 96, 192} {
				least, most := spread(partitions[:number], masters)
				if number%masters == 0 {
					require.Equal(t, least, most, "topic%d: %d partitions on %d masters", topic, number, masters)
				}
				if number <= 24 {
					require.LessOrEqual(t, most, least+1, "topic%d: %d partitions on %d masters", topic, number, masters)
				}
			}
		}
	}
}

// spread returns the lowest and the highest number of partitions of a master.
func spread(partitions []int, masters int) (least, most int) {
	counts := make([]int, masters)
	for _, slot := range partitions {
		counts[slot*masters/slots]++
	}
	return slices.Min(counts), slices.Max(counts)
}

func TestEachPartitionHasACellOfItsOwn(t *testing.T) {
	for _, topic := range awkward {
		cells := map[int]bool{}
		for n := range MaxPartitions {
			cells[cellOf(NewKeyNames("p", topic, n).Slot())] = true
		}
		assert.Len(t, cells, 192, topic)
	}
}

// TestPartitionNamesNeverChange because messages are stored under them.
func TestPartitionNamesNeverChange(t *testing.T) {
	var list []string
	for n := range 5 {
		list = append(list, string(NewKeyNames("redisdelay", "orders", n)))
	}
	assert.Equal(t, []string{
		"{redisdelay:orders:0}",
		"{redisdelay:orders:1.144}",
		"{redisdelay:orders:2.129}",
		"{redisdelay:orders:3.56}",
		"{redisdelay:orders:4.136}",
	}, list)
}
