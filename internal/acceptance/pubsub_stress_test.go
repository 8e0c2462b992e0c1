//go:build stress

package acceptance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

// TestPubSubStressTest runs ten of Watermill's suites at once. Restarts of the
// server are left out: each suite would restart it under the nine others, whose
// own timeouts do not allow for that.
func TestPubSubStressTest(t *testing.T) {
	s := newSuite(t, 100*time.Millisecond)
	s.features.RestartServiceCommand = nil
	tests.TestPubSubStressTest(t, s.features, s.pubSub, s.groupPubSub)
}
