package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestThePageOfSizesIsRight compares docs/operate/sizing.md with the formula, and the formula with a server.
func TestThePageOfSizesIsRight(t *testing.T) {
	l, err := openLab(0.3, "") // with 30,000 messages, as with 100,000, Redis has moved all to the larger tables
	require.NoError(t, err)
	defer l.close()
	version, err := l.infoText(t.Context(), "Server", "redis_version")
	require.NoError(t, err)
	within := 0.05
	if !strings.HasPrefix(version, "7.0.") {
		within = 0.25 // the formula is that of Redis 7.0
	}
	page := pageOfSizes(t)
	for _, s := range shapes() {
		assert.InEpsilon(t, s.formula(t, s.messages), page[s.name], 0.03, "%s on the page", s.name)
		require.NoError(t, l.reset(t.Context(), "sizes", s.name))
		measured, err := s.run(t.Context(), l)
		require.NoError(t, err)
		assert.InEpsilon(t, measured.get(byFormula), measured.get(memoryEach), within, "%s on Redis %s", s.name, version)
		delete(page, s.name)
	}
	assert.Empty(t, page, "only the page has these")
}

func (s shape) formula(t *testing.T, n int) float64 {
	t.Helper()
	body, err := s.body()
	require.NoError(t, err)
	return s.takes(cost{n, len(body)})
}

// pageOfSizes is the table of the page, bytes by name.
func pageOfSizes(t *testing.T) map[string]float64 {
	t.Helper()
	text, err := os.ReadFile("../docs/operate/sizing.md")
	require.NoError(t, err)
	list := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([\d,]+) bytes \|`).FindAllStringSubmatch(string(text), -1) {
		list[m[1]], err = strconv.ParseFloat(strings.ReplaceAll(m[2], ",", ""), 64)
		require.NoError(t, err)
	}
	return list
}

func TestWhatJemallocAllocates(t *testing.T) {
	for size, want := range map[int]float64{
		1: 16, 16: 16, 17: 32, 24: 32, 128: 128, 129: 160, 178: 192, 192: 192, 193: 224, 257: 320, 1024: 1024, 1025: 1280, 10_089: 10_240,
	} {
		assert.Equal(t, want, allocated(size), "%d", size)
	}
}

func TestALongExperimentRunsOnlyIfItIsNamed(t *testing.T) {
	long, short := experiment{name: "long", apart: true}, experiment{name: "short"}
	all, named := options{only: regexp.MustCompile("")}, options{only: regexp.MustCompile("^long$")}
	assert.True(t, all.chooses(short))
	assert.False(t, all.chooses(long))
	assert.True(t, named.chooses(long))
	assert.False(t, named.chooses(short))
}
