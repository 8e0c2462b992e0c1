package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestThePagesSayWhyATopicIsLate: the list of topics and the page of the topic.
func TestThePagesSayWhyATopicIsLate(t *testing.T) {
	s := newScene(t)
	s.initialize("billing", "mail")
	s.Publish("a", "b")
	s.ack("billing", 2)
	for _, path := range []string{"?match=" + url.QueryEscape(s.Topic), "topic" + s.at()} {
		problem := s.page(path).first("p", "class", "problem")
		assert.Regexp(t, "mail: 2 messages are waiting, the oldest for .*; no consumer of group mail is alive. Group mail", problem.text(), path)
		links := problem.all("a")
		assert.True(t, strings.HasSuffix(links[len(links)-1].attr["href"], "#group-mail"), path)
	}
}
