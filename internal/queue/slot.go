package queue

import (
	"math/bits"
	"strconv"
)

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// nearby is how many slots a partition may be from its ideal slot: few compared with
// the thousands of slots of a master, and cheap to find.
const nearby = 16

// slotOf is the Redis Cluster slot of a hash tag.
func slotOf(tag string) int { return int(crc16(0, tag)) % slots }

// crc16 continues a CRC-16/XMODEM, which Redis Cluster hashes with.
func crc16(crc uint16, text string) uint16 {
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// offset is how many slots a partition is from partition 0. It spreads a topic's
// partitions evenly over any number of masters that have equal shares of the slots:
// each third of the slots gets every third partition, and each partition halves the
// widest gap there (a van der Corput sequence). It does not depend on how many
// partitions there are, so a topic can get more.
func offset(number int) int {
	third, rest := number%3, uint16(number/3)
	return (third*slots + int(bits.Reverse16(rest))*slots>>16) / 3
}

// salt is what to append to a tag so that its slot is within nearby of the wanted
// one.
func salt(tag string, slot int) string {
	start := crc16(0, tag)
	for n := 0; ; n++ {
		text := strconv.Itoa(n)
		if (int(crc16(start, text))-slot)&(slots-1) < nearby {
			return text
		}
	}
}
