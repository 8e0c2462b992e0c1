package acceptance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// publishOverLink publishes messages, each with a call of its own, all at the same time. It returns how many calls succeed.
func publishOverLink(ctx context.Context, s *slowScene) (published int) {
	deadline, _ := ctx.Deadline()
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.PublishTimeout = time.Until(deadline) })
	sizes := make([]int, s.total())
	for i := range sizes {
		sizes[i] = s.size
	}
	for _, err := range publishAtOnce(s.T, s.Scene, p, sizes) {
		if err == nil {
			published++
		}
	}
	return published
}

// TestPublishingOverSlowLinks prints the same table as TestSlowLinks.
func TestPublishingOverSlowLinks(t *testing.T) {
	if !*slowLinks {
		t.Skip("only with -slowlinks")
	}
	var table strings.Builder
	for _, bandwidth := range []int{50e3, 200e3, 1500e3, 10e6} {
		for _, size := range []int{200, 2000, 10e3, 100e3} {
			for _, readTimeout := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second} {
				l := slowLink{bandwidth, size, readTimeout}
				t.Run(fmt.Sprintf("%d kB/s, %d B, %v", bandwidth/1000, size, readTimeout), func(t *testing.T) {
					published, took := l.run(t, publishOverLink)
					fmt.Fprintf(&table, "| %d kB/s | %d B | %v | %d of %d | %.1f s | %.1f |\n", bandwidth/1000, size, readTimeout,
						published, l.total(), took.Seconds(), took.Seconds()/l.ideal().Seconds())
					require.Equal(t, l.total(), published)
				})
			}
		}
	}
	t.Log("\n| bandwidth | message | ReadTimeout | published | time | of the best |\n| --- | --- | --- | --- | --- | --- |\n" + table.String())
}
