package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestPagesExplainWhyATopicIsLate: the list of topics and the page of the topic.
func TestPagesExplainWhyATopicIsLate(t *testing.T) {
	s := open(fixture.NewOn(t, redistest.New(t)), func(*Config) {})
	s.initialize("billing", "mail")
	s.Publish("a", "b")
	s.ack("billing", 2)
	for _, path := range []string{"?match=" + url.QueryEscape(s.Topic), "topic" + s.at()} {
		problem := s.page(path).first("p", "class", "problem")
		assert.Regexp(t, "^Group mail (of .*)?: 2 messages are due and wait, the oldest for .*; no consumer of group mail is alive. Start a consumer.$", problem.text(), path)
		assert.True(t, strings.HasSuffix(problem.first("a").attr["href"], "#group-mail"), path)
		assert.Contains(t, s.page(path).first("tbody").text(), "no consumers", path)
	}
	assert.Equal(t, "(1) Topics · redisdelay", s.page("").first("title").text())
}
