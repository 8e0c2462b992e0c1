//go:build stress

package acceptance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

const allInFull = true

// TestPubSubStressTest runs ten of Watermill's suites at once. It leaves out restarts of
// the server: each suite would restart it under the nine others, whose timeouts do not
// allow for that.
func TestPubSubStressTest(t *testing.T) {
	s := newSuite(t, 100*time.Millisecond)
	s.features.RestartServiceCommand = nil
	tests.TestPubSubStressTest(t, s.features, s.pubSub, s.groupPubSub)
}
