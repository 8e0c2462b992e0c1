package top

import (
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// TestEnterOpensATopicAndAGroup, and Esc goes back the same way.
func TestEnterOpensATopicAndAGroup(t *testing.T) {
	describe := func(g admin.GroupStats) []string { return []string{"about " + g.Group + "\x1b[2J"} }
	evil := topic("evil\x1b[2J", 9, 0)
	m := sampled(t, Config{Interval: time.Second, Describe: describe}, 140, 20, topic("a", 1, 0), topic("b", 2, time.Minute), evil)
	for m.order != byDead {
		m.press("s")
	}
	m.press("home")
	screen := func() string { return ansi.Strip(m.screen()) }
	m.press("down")
	m.press("enter")
	assert.Contains(t, screen(), "topic b, 1 group")
	assert.Contains(t, screen(), "GROUP")
	m.take(sample{stats: []admin.TopicStats{topic("a", 1, 0), topic("b", 3, 0), evil}}, start.Add(time.Second))
	assert.Contains(t, screen(), "topic b, 1 group", "it stays open")
	m.press("enter")
	assert.Contains(t, screen(), "group g of topic b")
	assert.Contains(t, screen(), `about g\x1b[2J`)
	m.press("enter")
	require.Nil(t, m.press("esc"))
	assert.Contains(t, screen(), "topic b, 1 group")
	require.Nil(t, m.press("esc"))
	assert.Contains(t, screen(), "3 topics")
	assert.Equal(t, 1, m.chosen, "b is still chosen")
	m.press("up")
	m.press("enter")
	assert.Contains(t, screen(), `topic evil\x1b[2J`)
	m.take(sample{}, start.Add(2*time.Second))
	m.press("enter")
	assert.Contains(t, screen(), "0 groups", "it is gone")
	m.press("left")
	assert.Equal(t, tea.Quit(), m.press("esc")())
}

func TestTheQuestionMarkExplainsKeysAndColumns(t *testing.T) {
	m := sampled(t, Config{Interval: time.Second}, 140, 20, topic("a", 1, 0))
	m.press("?")
	assert.Contains(t, m.screen(), "go back")
	m.press("q")
	assert.NotContains(t, m.screen(), "go back", "any key ends it")
	m.press("?")
	assert.Equal(t, tea.Quit(), m.press("ctrl+c")())
}

// FuzzTheScreen: whatever names, errors and reasons are, the screen has only characters and our
// own colours.
func FuzzTheScreen(f *testing.F) {
	f.Add("orders", "timeout")
	f.Add("\x1b[2J\u009b\u202e\xff\r\n\t", "\x1b]0;x\x07")
	f.Fuzz(func(t *testing.T, name, text string) {
		describe := func(admin.GroupStats) []string { return []string{text, name} }
		s := topic(name, 1, time.Minute)
		s.Groups[0].Group = name
		m := sampled(t, Config{Interval: time.Second, Describe: describe, Where: text}, 120, 20, s, topic("b", 0, 0))
		m.take(sample{stats: m.stats, err: errOf(text)}, start.Add(time.Second))
		for _, key := range []string{"", "enter", "enter", "?"} {
			m.press(key)
			for _, r := range strings.NewReplacer("\x1b[1m", "", "\x1b[2m", "", "\x1b[7m", "", "\x1b[1;7m", "", "\x1b[33m", "",
				"\x1b[1;31m", "", "\x1b[m", "", "\n", "").Replace(m.screen()) {
				if r != ' ' && !unicode.IsPrint(r) {
					t.Fatalf("%U on the screen after %q: %q", r, key, m.screen())
				}
			}
		}
	})
}

type errOf string

func (e errOf) Error() string { return string(e) }
