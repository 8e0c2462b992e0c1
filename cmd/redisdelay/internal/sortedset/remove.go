package sortedset

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

//go:embed remove.lua
var removeSource string

var removeScript = redis.NewScript(removeSource)

// Remove removes jobs from the set, and returns how many. A job whose score has changed since it was read stays: it is
// another one by now.
func (s Set) Remove(ctx context.Context, jobs []Job) (removed int, err error) {
	for some := range slices.Chunk(jobs, pageSize) {
		var args []any
		for _, job := range some {
			args = append(args, job.Member, strconv.FormatFloat(job.Score, 'g', -1, 64))
		}
		n, err := removeScript.Run(ctx, s.client, []string{s.Key}, args...).Int()
		if removed += n; err != nil {
			return removed, fmt.Errorf("remove from sorted set %q: %w", s.Key, err)
		}
	}
	return removed, nil
}
