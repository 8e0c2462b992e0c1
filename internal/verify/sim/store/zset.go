package store

import (
	"cmp"
	"math"
	"slices"
)

// entry is a member of a sorted set.
type entry struct {
	score int64
	id    string
}

func compare(a, b entry) int {
	if c := cmp.Compare(a.score, b.score); c != 0 {
		return c
	}
	return cmp.Compare(a.id, b.id)
}

// zset is a sorted set. Its zero value is empty.
type zset struct {
	list   []entry // sorted
	scores map[string]int64
}

func (z *zset) add(score int64, id string) {
	if old, known := z.scores[id]; known {
		if old == score {
			return
		}
		z.remove(id)
	}
	if z.scores == nil {
		z.scores = map[string]int64{}
	}
	z.scores[id] = score
	e := entry{score, id}
	if n := len(z.list); n == 0 || compare(z.list[n-1], e) < 0 {
		z.list = append(z.list, e)
		return
	}
	at, _ := slices.BinarySearchFunc(z.list, e, compare)
	z.list = slices.Insert(z.list, at, e)
}

func (z *zset) remove(id string) bool {
	score, known := z.scores[id]
	if !known {
		return false
	}
	delete(z.scores, id)
	at, _ := slices.BinarySearchFunc(z.list, entry{score, id}, compare)
	if at == 0 {
		z.list = z.list[1:]
		return true
	}
	z.list = slices.Delete(z.list, at, at+1)
	return true
}

func (z *zset) has(id string) bool {
	_, known := z.scores[id]
	return known
}

// head returns the lowest score, unless all messages wait in line.
func (z *zset) head() (score int64, ok bool) {
	if len(z.list) == 0 || z.list[0].score >= inLine {
		return 0, false
	}
	return z.list[0].score, true
}

// earliest returns the lowest score; later than any time if there is none.
func (z *zset) earliest() int64 {
	if score, ok := z.head(); ok {
		return score
	}
	return math.MaxInt64
}

// upTo copies the first entries whose score is at most a limit.
func (z *zset) upTo(score int64, count int) []entry {
	n := 0
	for n < len(z.list) && n < count && z.list[n].score <= score {
		n++
	}
	return slices.Clone(z.list[:n])
}
